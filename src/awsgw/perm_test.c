/* Lists of accounts and "all": what may be asked for, and what it does. */
#include "awsgw/perm.h"

#include "base/test.h"

#define A1 STR("111111111111")
#define A2 STR("222222222222")
#define A3 STR("333333333333")

static void test_notes(void **state)
{
    static const struct {
        const char *user, *group, *want;
    } cases[] = {
        {"111111111111", NULL, NULL},
        {NULL, "all", NULL},
        {"111111111111", "all", NULL},
        {NULL, NULL, NULL},
        {"11111111111", NULL, "InvalidUserID.Malformed"},
        {"1111111111111", NULL, "InvalidUserID.Malformed"},
        {"11111111111a", NULL, "InvalidUserID.Malformed"},
        {"", NULL, "InvalidUserID.Malformed"},
        {NULL, "everybody", "InvalidParameterValue"},
        {NULL, "", "InvalidParameterValue"},
    };
    AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct perm_change *c = arena_new_of(a, struct perm_change);
        struct err err = ERR_INIT;
        int r = perm_note(c, false, str_c(cases[i].user), str_c(cases[i].group), &err);
        if (cases[i].want) {
            assert_true(r < 0);
            assert_string_equal(err.name, cases[i].want);
            assert_true(perm_is_empty(c));
        } else {
            assert_int_equal(r, 0);
            assert_int_equal(c->n_add, cases[i].user != NULL);
            assert_int_equal(c->is_all_added, cases[i].group != NULL);
            assert_int_equal(perm_is_empty(c), !cases[i].user && !cases[i].group);
        }
    }
}

static void test_at_most_so_many_changes(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
    struct perm_change *c = arena_new_of(a, struct perm_change);
    struct err err = ERR_INIT;
    for (size_t i = 0; i < PERM_CHANGES_MAX; i++) {
        assert_int_equal(perm_note(c, i % 2 == 0, A1, STR_NONE, &err), 0);
    }
    assert_true(perm_note(c, false, A1, STR_NONE, &err) < 0);
    assert_string_equal(err.name, "ResourceCountExceeded");
}

static void test_lists_need_an_operation(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
    struct perm_change *c = arena_new_of(a, struct perm_change);
    struct str id = A1, all = STR("all");
    const struct aws_str_list users = {&id, 1, true}, groups = {&all, 1, true}, none = {0};
    struct err err = ERR_INIT;
    assert_int_equal(perm_note_lists(c, STR_NONE, &none, &none, &err), 0);
    assert_true(perm_note_lists(c, STR_NONE, &users, &none, &err) < 0);
    assert_string_equal(err.name, "MissingParameter");
    err_clear(&err);
    assert_int_equal(perm_note_lists(c, STR("remove"), &users, &groups, &err), 0);
    assert_true(c->n_remove == 1 && c->is_all_removed && c->n_add == 0 && !c->is_all_added);
}

static void test_changes(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(4u << 20);
    struct str old[] = {A1, A2};
    struct str_list l = {old, 2};
    bool is_public = false;
    struct perm_change *c = arena_new_of(a, struct perm_change);
    c->add[c->n_add++] = A2; /* there already */
    c->add[c->n_add++] = A3;
    c->add[c->n_add++] = A3;
    c->is_all_added = true;
    assert_int_equal(perm_apply(a, c, &l, &is_public, NULL), 0);
    assert_int_equal(l.n, 3);
    assert_true(perm_has(l, A1) && perm_has(l, A2) && perm_has(l, A3) && is_public);
    c = arena_new_of(a, struct perm_change);
    c->remove[c->n_remove++] = A2;
    c->remove[c->n_remove++] = STR("999999999999"); /* not missed */
    assert_int_equal(perm_apply(a, c, &l, &is_public, NULL), 0);
    assert_int_equal(l.n, 2);
    assert_true(!perm_has(l, A2) && is_public);
    c = arena_new_of(a, struct perm_change);
    c->is_all_removed = true;
    assert_int_equal(perm_apply(a, c, &l, &is_public, NULL), 0);
    assert_true(l.n == 2 && !is_public);
}

static void test_a_list_does_not_grow_for_ever(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(16u << 20);
    struct str_list l = {0};
    bool is_public = false;
    int r = 0;
    struct err err = ERR_INIT;
    for (unsigned i = 0; r == 0; i++) {
        struct perm_change *c = arena_new_of(a, struct perm_change);
        for (unsigned k = 0; k < PERM_CHANGES_MAX; k++) {
            c->add[c->n_add++] = arena_fmt(a, "%012u", i * PERM_CHANGES_MAX + k);
        }
        assert_true(l.n <= PERM_MAX);
        r = perm_apply(a, c, &l, &is_public, &err);
    }
    assert_string_equal(err.name, "ResourceLimitExceeded");
    assert_int_equal(l.n, PERM_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_notes),
        cmocka_unit_test(test_at_most_so_many_changes),
        cmocka_unit_test(test_lists_need_an_operation),
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_a_list_does_not_grow_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
