/* Tokens, sizes and encodings of lists. */
#include "predastore/page.h"

#include "base/test.h"

#include <errno.h>
#include <stdlib.h>

struct world {
    struct arena *arena;
    struct s3_call call;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    assert_non_null(w);
    w->arena = arena_new(1u << 20);
    w->call.arena = w->arena;
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    arena_free(w->arena);
    free(w);
    return 0;
}

static void test_a_token_leads_back_to_where_it_was_made(void **state)
{
    struct world *w = *state;
    char all[256];
    char longest[REST_MAX_KEY];
    for (size_t i = 0; i < sizeof(all); i++) {
        all[i] = (char)i;
    }
    memset(longest, 0xff, sizeof(longest));
    const struct str keys[] = {STR("a"), STR("a/b"), str_n(all, sizeof(all)),
                               str_n(longest, sizeof(longest)), STR("")};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        struct str back = STR_NONE;
        struct str token = page_token(w->arena, 7, keys[i]);
        assert_true(token.n > 0);
        for (size_t k = 0; k < token.n; k++) { /* nothing that a query would have to encode */
            assert_non_null(strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                   "0123456789-_",
                                   token.p[k]));
        }
        assert_int_equal(page_token_parse(w->arena, 7, token, &back), 0);
        assert_true(str_eq(back, keys[i]));
    }
}

static void test_what_is_no_token_of_this_list_is_refused(void **state)
{
    struct world *w = *state;
    struct str back = STR_NONE;
    struct str token = page_token(w->arena, 7, STR("some/key"));
    assert_int_equal(page_token_parse(w->arena, 8, token, &back), -EINVAL);
    for (size_t cut = 0; cut < token.n; cut++) {
        assert_int_equal(page_token_parse(w->arena, 7, str_n(token.p, cut), &back), -EINVAL);
    }
    for (size_t i = 0; i < token.n; i++) {
        char text[128];
        assert_true(token.n < sizeof(text));
        memcpy(text, token.p, token.n);
        text[i] = text[i] == 'A' ? 'B' : 'A';
        struct str other = str_n(text, token.n);
        /* The last character may hold bits that belong to no byte. */
        int r = page_token_parse(w->arena, 7, other, &back);
        assert_true(r == -EINVAL || (i + 1 == token.n && str_eqc(back, "some/key")));
    }
    const struct str bad[] = {STR(""),         STR("="),    STR("AAAA"), STR("not a token"),
                              STR("\x01\x02"), STR("////"), STR("++++")};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(page_token_parse(w->arena, 7, bad[i], &back), -EINVAL);
    }
}

static void test_sizes_of_pages(void **state)
{
    static const struct {
        struct opt_i64 given;
        int rc;
        size_t want;
    } cases[] = {
        {{0, false}, 0, 1000},
        {{0, true}, 0, 0},
        {{1, true}, 0, 1},
        {{999, true}, 0, 999},
        {{1000, true}, 0, 1000},
        {{1001, true}, 0, 1000},
        {{-1, true}, -EINVAL, 0},
        {{INT32_MAX, true}, 0, 1000},
        {{INT64_MAX, true}, -EINVAL, 0},
    };
    struct world *w = *state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        size_t got = 0;
        struct err e = ERR_INIT;
        assert_int_equal(page_size(&w->call, "max-keys", cases[i].given, 1000, &got, &e),
                         cases[i].rc);
        assert_int_equal(got, cases[i].want);
        if (cases[i].rc < 0) {
            assert_string_equal(e.name, "InvalidArgument");
        }
    }
}

static void test_texts_of_an_encoded_list(void **state)
{
    static const struct {
        struct str plain;
        const char *want;
    } cases[] = {
        {STR("asdf+b"), "asdf%2Bb"}, {STR("a b/"), "a%20b/"},
        {STR("100%"), "100%25"},     {STR("\n"), "%0A"},
        {STR("\xc3\xa4"), "%C3%A4"}, {STR("-_.~"), "-_.~"},
        {STR("a/b"), "a/b"},         {STR(""), ""},
        {STR("\0a"), "%00a"},
    };
    struct world *w = *state;
    struct page_enc enc;
    assert_int_equal(page_enc_begin(&w->call, STR("url"), &enc, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str got = page_enc_text(&enc, cases[i].plain);
        assert_true(str_eqc(got, cases[i].want));
    }
    assert_false(str_is_set(page_enc_text(&enc, STR_NONE)));
    assert_int_equal(page_enc_begin(&w->call, STR_NONE, &enc, NULL), 0);
    assert_true(str_eqc(page_enc_text(&enc, STR("a b")), "a b"));
    assert_int_equal(page_enc_begin(&w->call, STR("base64"), &enc, NULL), -EINVAL);
    assert_int_equal(page_enc_begin(&w->call, STR(""), &enc, NULL), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_token_leads_back_to_where_it_was_made, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_what_is_no_token_of_this_list_is_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_sizes_of_pages, setup, teardown),
        cmocka_unit_test_setup_teardown(test_texts_of_an_encoded_list, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
