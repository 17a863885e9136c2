#include "ostore/ostore_world.h"

#include "base/num.h"
#include <errno.h>
#include <stdio.h>

#define assert_ok(w, rc)                                                           \
    do {                                                                           \
        int rc_ = (rc);                                                            \
        if (rc_ < 0) {                                                             \
            fail_msg("%s: %d %s %s", #rc, rc_, (w)->err.name ? (w)->err.name : "", \
                     (w)->err.msg);                                                \
        }                                                                          \
    } while (0)

static void assert_body(struct world *w, const struct obucket *b, struct str key,
                        const uint8_t *version, struct str want)
{
    struct str got;
    assert_ok(w, world_read(w, b, key, version, &got, NULL));
    assert_int_equal(got.n, want.n);
    assert_memory_equal(got.p, want.p, want.n);
}

static void small_and_large_bodies(void **state)
{
    static const size_t sizes[] = {0,     1,      4096,   16368,   16369,
                                   65536, 131072, 131073, 1000000, 5000000};
    struct world w;
    world_init(&w, 2, 1);
    world_open(&w);
    const struct obucket *b = world_bucket(&w, "films");
    for (int turn = 0; turn < 3; turn++) {
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
            char key[32];
            (void)snprintf(key, sizeof(key), "key-%zu", i);
            struct str body = world_bytes(&w, sizes[i], (uint32_t)i);
            if (turn == 0) {
                assert_ok(&w, world_put(&w, b, str_c(key), body, NULL));
            }
            assert_body(&w, b, str_c(key), NULL, body);
        }
        obucket_unref(b);
        world_again(&w, turn == 1);
        b = world_bucket(&w, "films");
        assert_int_equal(b->n_objects, ARRAY_LEN(sizes));
    }
    obucket_unref(b);
    world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_and_large_bodies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
