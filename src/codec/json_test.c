#include "base/test.h"
#include "codec/json.h"
#include <errno.h>

static void test_accepts_and_refuses(void **state)
{
    static const struct {
        const char *name;
        const char *in;
        const char *want; /* dumped again; NULL = refused */
    } cases[] = {
        {"object", " {\"b\" : 1, \"a\":[true,false,null]} ",
         "{\"b\":1,\"a\":[true,false,null]}"},
        {"scalar", "\"x\"", "\"x\""},
        {"largest", "9223372036854775807", "9223372036854775807"},
        {"smallest", "-9223372036854775808", "-9223372036854775808"},
        {"exact beyond 2^53", "9007199254740993", "9007199254740993"},
        {"beyond int64", "9223372036854775808", NULL},
        {"real", "[1.5,1e2,-0.25]", "[1.5,100.0,-0.25]"},
        {"real out of range", "1e400", NULL},
        {"duplicate member", "{\"a\":1,\"a\":2}", NULL},
        {"leading zero", "01", NULL},
        {"plus sign", "+1", NULL},
        {"two documents", "1 2", NULL},
        {"trailing comma", "[1,]", NULL},
        {"comment", "/* x */ 1", NULL},
        {"empty", "", NULL},
        {"cut", "{\"a\":", NULL},
        {"control byte in string", "\"a\tb\"", NULL},
        {"bad utf-8", "\"\xff\"", NULL},
        {"overlong utf-8", "\"\xc0\xaf\"", NULL},
        {"lone surrogate", "\"\\ud800\"", NULL},
        {"pair", "\"\\ud83d\\ude00\"", "\"\xf0\x9f\x98\x80\""},
        {"nul in string", "\"a\\u0000b\"", "\"a\\u0000b\""},
        {"nul in name", "{\"a\\u0000\":1}", NULL},
        {"escapes", "\"\\\"\\\\\\/\\b\\n\"", "\"\\\"\\\\/\\u0008\\n\""},
        {"bracket inside a string", "\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[\"",
         "\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[\""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(json_freep) struct json *j = NULL;
        struct err err = ERR_INIT;
        int r = json_parse(str_c(cases[i].in), &j, &err);
        if (!cases[i].want) {
            assert_int_equal(r, -EINVAL);
            assert_string_equal(err.name, "BadJson");
            continue;
        }
        if (r < 0) {
            fail_msg("%s: %s", cases[i].name, err.msg);
        }
        AUTO_BUF out;
        buf_init(&out, 1000);
        json_dump(j, &out);
        assert_string_equal(buf_cstr(&out), cases[i].want);
    }
}

static void test_depth_is_bounded(void **state)
{
    for (size_t depth = JSON_MAX_DEPTH - 1; depth <= JSON_MAX_DEPTH + 1; depth++) {
        AUTO_BUF text;
        buf_init(&text, 1000);
        for (size_t i = 0; i < depth; i++) {
            buf_addc(&text, "[");
        }
        for (size_t i = 0; i < depth; i++) {
            buf_addc(&text, "]");
        }
        AUTO(json_freep) struct json *j = NULL;
        int r = json_parse(buf_str(&text), &j, NULL);
        assert_int_equal(r, depth <= JSON_MAX_DEPTH ? 0 : -EINVAL);
    }
}

static void test_getters_answer_defaults(void **state)
{
    AUTO(json_freep) struct json *j = NULL;
    assert_int_equal(
        json_parse(STR("{\"s\":\"x\",\"n\":-5,\"u\":7,\"b\":true,\"a\":[1,\"y\"],\"z\":null}"),
                   &j, NULL),
        0);
    assert_true(str_eqc(json_get_str(j, "s"), "x"));
    assert_false(str_is_set(json_get_str(j, "n")));
    assert_int_equal(json_get_i64(j, "n", 1), -5);
    assert_int_equal(json_get_u64(j, "n", 9), 9);
    assert_int_equal(json_get_u64(j, "u", 9), 7);
    assert_int_equal(json_get_u64(j, "absent", 9), 9);
    assert_true(json_get_bool(j, "b", false));
    assert_true(json_get_bool(j, "s", true));
    assert_int_equal(json_len(json_get(j, "a")), 2);
    assert_true(str_eqc(json_str(json_at(json_get(j, "a"), 1)), "y"));
    assert_null(json_at(json_get(j, "a"), 2));
    assert_int_equal(json_type(json_get(j, "z")), JSON_T_NULL);
    assert_null(json_get(json_get(j, "s"), "x"));
    assert_null(json_get(NULL, "x"));
    struct str name = STR_NONE;
    struct json *value = NULL;
    assert_true(json_member(j, 2, &name, &value));
    assert_true(str_eqc(name, "u"));
    assert_false(json_member(j, 6, &name, &value));
}

static void test_writer(void **state)
{
    AUTO_BUF out;
    buf_init(&out, 1000);
    struct jw w;
    jw_init(&w, &out);
    jw_obj(&w, NULL);
    jw_arr(&w, "a");
    jw_obj(&w, NULL);
    jw_obj_end(&w);
    jw_u64(&w, NULL, 1);
    jw_i64(&w, NULL, -1);
    jw_arr_end(&w);
    jw_str(&w, "s\"", STR("q\"\\\n\x01\x7f\xff\xc3\xa4\xed\xa0\x80"));
    jw_str(&w, "none", STR_NONE);
    jw_bool(&w, "t", true);
    jw_raw(&w, "raw", STR("[1]"));
    jw_null(&w, "n");
    jw_obj_end(&w);
    assert_string_equal(
        buf_cstr(&out),
        "{\"a\":[{},1,-1],\"s\\\"\":"
        "\"q\\\"\\\\\\n\\u0001\\u007f\xef\xbf\xbd\xc3\xa4\xef\xbf\xbd"
        "\xef\xbf\xbd\xef\xbf\xbd\",\"none\":null,\"t\":true,\"raw\":[1],\"n\":null}");
    AUTO(json_freep) struct json *j = NULL;
    assert_int_equal(json_parse(buf_str(&out), &j, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepts_and_refuses),
        cmocka_unit_test(test_depth_is_bounded),
        cmocka_unit_test(test_getters_answer_defaults),
        cmocka_unit_test(test_writer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
