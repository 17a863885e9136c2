#include "base/test.h"
#include "codec/rec.h"
#include <errno.h>

struct leaf {
    struct rec_head head;
    struct str name;
    int64_t n;
};
static const struct rec_field leaf_fields[] = {
    REC_FIELD(struct leaf, REC_STR, name),
    REC_FIELD(struct leaf, REC_I64, n),
};
static REC_DESC(leaf_desc, struct leaf, "leaf", 1, leaf_fields);

struct leaf_list {
    struct leaf *v;
    size_t n;
};
struct tree {
    struct rec_head head;
    struct str id;
    uint64_t size;
    bool is_tall;
    struct str_list names;
    struct leaf top;
    struct leaf_list leaves;
};
static const struct rec_field tree_fields[] = {
    REC_FIELD(struct tree, REC_STR, id),
    REC_FIELD(struct tree, REC_U64, size),
    REC_FIELD(struct tree, REC_BOOL, is_tall),
    REC_FIELD(struct tree, REC_STR_LIST, names),
    REC_FIELD_SUB(struct tree, REC_OBJ, top, &leaf_desc),
    REC_FIELD_SUB(struct tree, REC_OBJ_LIST, leaves, &leaf_desc),
};
static REC_DESC(tree_desc, struct tree, "tree", 3, tree_fields);

static void save(const struct tree *t, const char *want)
{
    AUTO_BUF out;
    buf_init(&out, 4000);
    struct err err = ERR_INIT;
    if (rec_save(&tree_desc, t, &out, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    assert_string_equal(buf_cstr(&out), want);
}

static void test_round_trip(void **state)
{
    struct str names[] = {STR("x"), STR("")};
    struct leaf leaves[] = {{.name = STR("l0"), .n = -1}, {.n = 5}};
    struct tree t = {.id = STR("t-1"),
                     .size = INT64_MAX,
                     .is_tall = true,
                     .names = {names, 2},
                     .top = {.name = STR("crown")},
                     .leaves = {leaves, 2}};
    const char *text = "{\"v\":3,\"id\":\"t-1\",\"size\":9223372036854775807,\"is_tall\":true,"
                       "\"names\":[\"x\",\"\"],\"top\":{\"name\":\"crown\",\"n\":0},"
                       "\"leaves\":[{\"name\":\"l0\",\"n\":-1},{\"n\":5}]}";
    save(&t, text);

    AUTO(arena_freep) struct arena *a = arena_new(10000);
    struct tree back;
    assert_int_equal(rec_load(&tree_desc, a, str_c(text), &back, NULL), 0);
    assert_true(str_eqc(back.id, "t-1"));
    assert_int_equal(back.names.n, 2);
    assert_true(str_is_set(back.names.v[1]));
    assert_int_equal(back.leaves.n, 2);
    assert_int_equal(back.leaves.v[0].n, -1);
    assert_false(str_is_set(back.leaves.v[1].name));
    save(&back, text);
}

static void test_members_of_newer_binaries_survive(void **state)
{
    const char *text =
        "{\"v\":9,\"new\":{\"x\":[1]},\"id\":\"t-1\",\"size\":1,"
        "\"top\":{\"n\":1,\"shape\":\"round\"},\"leaves\":[{\"n\":2},{\"n\":3,\"k\":1}]}";
    AUTO(arena_freep) struct arena *a = arena_new(10000);
    struct tree t;
    assert_int_equal(rec_load(&tree_desc, a, str_c(text), &t, NULL), 0);
    t.size = 2;
    t.leaves.v[0] = t.leaves.v[1]; /* an element takes its own unknown members along */
    t.leaves.n = 1;
    save(&t, "{\"v\":9,\"id\":\"t-1\",\"size\":2,\"is_tall\":false,\"names\":[],"
             "\"top\":{\"n\":1,\"shape\":\"round\"},\"leaves\":[{\"n\":3,\"k\":1}],"
             "\"new\":{\"x\":[1]}}");
}

static void test_a_cleared_member_goes(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(10000);
    struct tree t;
    assert_int_equal(rec_load(&tree_desc, a, STR("{\"id\":\"x\"}"), &t, NULL), 0);
    t.id = STR_NONE;
    save(&t,
         "{\"v\":3,\"size\":0,\"is_tall\":false,\"names\":[],\"top\":{\"n\":0},\"leaves\":[]}");
}

static void test_bad_records_name_the_member(void **state)
{
    static const struct {
        const char *text, *msg_part;
    } cases[] = {
        {"[]", "not a JSON object"},
        {"{\"id\":1}", "\"id\" is not a string"},
        {"{\"size\":-1}", "\"size\" is not a whole number from 0 up"},
        {"{\"size\":1.0}", "\"size\" is not a whole number"},
        {"{\"is_tall\":0}", "\"is_tall\" is not true or false"},
        {"{\"names\":{}}", "\"names\" is not a list"},
        {"{\"names\":[1]}", "\"names\" holds something"},
        {"{\"top\":[]}", "leaf record is not a JSON object"},
        {"{\"leaves\":{}}", "\"leaves\" is not a list"},
        {"{\"leaves\":[{\"n\":\"1\"}]}", "\"n\" is not a whole number"},
        {"{", "tree record: JSON line 1"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(arena_freep) struct arena *a = arena_new(10000);
        struct tree t;
        struct err err = ERR_INIT;
        assert_int_equal(rec_load(&tree_desc, a, str_c(cases[i].text), &t, &err), -EINVAL);
        if (!strstr(err.msg, cases[i].msg_part)) {
            fail_msg("%s: %s", cases[i].text, err.msg);
        }
        assert_false(str_is_set(t.id));
    }
}

static void test_limits(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(600);
    struct tree t;
    struct err err = ERR_INIT;
    AUTO_BUF text;
    buf_init(&text, 10000);
    buf_addc(&text, "{\"leaves\":[{}");
    for (unsigned i = 0; i < 100; i++) {
        buf_addc(&text, ",{}");
    }
    buf_addc(&text, "]}");
    assert_int_equal(rec_load(&tree_desc, a, buf_str(&text), &t, &err), -ENOMEM);
    assert_string_equal(err.name, "RecordTooLarge");

    AUTO_BUF small;
    buf_init(&small, 10);
    t = (struct tree){.id = STR("0123456789")};
    assert_int_equal(rec_save(&tree_desc, &t, &small, NULL), -E2BIG);
    AUTO_BUF out;
    buf_init(&out, 1000);
    t = (struct tree){.size = UINT64_MAX};
    assert_int_equal(rec_save(&tree_desc, &t, &out, NULL), -EINVAL);
    assert_int_equal(out.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_members_of_newer_binaries_survive),
        cmocka_unit_test(test_a_cleared_member_goes),
        cmocka_unit_test(test_bad_records_name_the_member),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
