/* arena, buf, vec: limits hold, nothing is half-done at a limit. */
#include "base/arena.h"

#include "base/buf.h"
#include "base/test.h"
#include "base/vec.h"

#include <errno.h>

static void count_up(void *p)
{
    (*(int *)p)++;
}

static void arena_keeps_its_limit(void **state)
{
    struct arena *a = arena_new(1000);
    assert_non_null(arena_alloc(a, 900));
    assert_null(arena_alloc(a, 200));
    assert_null(arena_array(a, SIZE_MAX / 2, 4));
    assert_null(arena_alloc(a, SIZE_MAX));
    arena_free(a);
}

static void arena_runs_deferred_calls_once(void **state)
{
    int n = 0;
    struct arena *a = arena_new(ARENA_REQUEST_MAX);
    assert_int_equal(arena_defer(a, count_up, &n), 0);
    arena_reset(a);
    assert_int_equal(n, 1);
    assert_int_equal(arena_defer(a, count_up, &n), 0);
    arena_free(a);
    assert_int_equal(n, 2);
}

static void arena_blocks_are_zero_after_reset(void **state)
{
    struct arena *a = arena_new(ARENA_REQUEST_MAX);
    memset(arena_xalloc(a, 64), 0xff, 64);
    arena_reset(a);
    char *p = arena_xalloc(a, 64);
    for (int i = 0; i < 64; i++) {
        assert_int_equal(p[i], 0);
    }
    for (int i = 0; i < 2000; i++) {
        assert_str(arena_fmt(a, "%04d", i), arena_cstr(a, arena_fmt(a, "%04d", i)));
    }
    arena_free(a);
}

static void absent_strings_stay_absent(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(ARENA_REQUEST_MAX);
    assert_null(arena_str_dup(a, STR_NONE).p);
    assert_non_null(arena_str_dup(a, STR("")).p);
}

static void buf_refuses_past_its_maximum(void **state)
{
    AUTO_BUF b;
    buf_init(&b, 8);
    buf_addc(&b, "12345678");
    assert_true(buf_ok(&b));
    buf_add_char(&b, '9');
    assert_false(buf_ok(&b));
    assert_int_equal(b.n, 8);
    assert_string_equal(buf_cstr(&b), "");
    assert_null(buf_take(&b));
    buf_clear(&b);
    buf_fmt(&b, "%s-%d", "ab", 7);
    assert_string_equal(buf_cstr(&b), "ab-7");
    buf_drop(&b, 3);
    assert_string_equal(buf_cstr(&b), "7");
    buf_drop(&b, 99);
    assert_int_equal(b.n, 0);
}

static void buf_take_gives_the_bytes(void **state)
{
    AUTO_BUF b;
    buf_init(&b, 100);
    AUTO_FREE char *empty = buf_take(&b);
    assert_string_equal(empty, "");
    buf_addc(&b, "xyz");
    AUTO_FREE char *s = buf_take(&b);
    assert_string_equal(s, "xyz");
    assert_int_equal(b.n, 0);
}

static void vec_grows_and_removes(void **state)
{
    VEC(int) v = {0};
    for (int i = 0; i < 100; i++) {
        vec_push(&v, i);
    }
    vec_remove(&v, 0);
    vec_remove(&v, 98);
    assert_int_equal(v.n, 98);
    assert_int_equal(v.v[0], 1);
    assert_int_equal(v.v[97], 98);
    vec_free(&v);
    assert_null(v.v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_keeps_its_limit),
        cmocka_unit_test(arena_runs_deferred_calls_once),
        cmocka_unit_test(arena_blocks_are_zero_after_reset),
        cmocka_unit_test(absent_strings_stay_absent),
        cmocka_unit_test(buf_refuses_past_its_maximum),
        cmocka_unit_test(buf_take_gives_the_bytes),
        cmocka_unit_test(vec_grows_and_removes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
