#include "base/omap.h"

#include "base/rand.h"
#include "base/test.h"

#include <stdio.h>

static void ordered_walks_and_prefixes(void **state)
{
    struct omap *m = omap_new();
    static const char *keys[] = {"b/2", "a/1", "b/1", "c", "b/", "b", "b/10"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        assert_null(omap_put(m, str_c(keys[i]), (void *)(uintptr_t)keys[i]));
    }
    const char *want[] = {"b/", "b/1", "b/10", "b/2"};
    size_t n = 0;
    omap_foreach_prefix(node, m, STR("b/"))
    {
        assert_str(omap_key(node), want[n]);
        n++;
    }
    assert_int_equal(n, 4);
    assert_null(omap_get(m, STR("b/3")));
    assert_null(omap_seek(m, STR("d")));
    assert_int_equal(omap_len(m), 7);
    assert_non_null(omap_put(m, STR("c"), m));
    assert_ptr_equal(omap_remove(m, STR("c")), m);
    assert_null(omap_remove(m, STR("c")));
    assert_int_equal(omap_len(m), 6);
    omap_free(m, NULL);
}

/* Against a plain array as the model. */
static void random_operations_match_a_model(void **state)
{
    enum { N = 500, STEPS = 20000 };
    struct omap *m = omap_new();
    bool present[N] = {false};
    static int tokens[N];
    size_t len = 0;
    for (int i = 0; i < STEPS; i++) {
        unsigned k = (unsigned)(rand_u64() % N);
        char key[8];
        snprintf(key, sizeof(key), "%03u", k);
        if (rand_u64() % 2) {
            assert_ptr_equal(omap_put(m, str_c(key), &tokens[k]),
                             present[k] ? &tokens[k] : NULL);
            len += !present[k];
            present[k] = true;
        } else {
            assert_ptr_equal(omap_remove(m, str_c(key)), present[k] ? &tokens[k] : NULL);
            len -= present[k];
            present[k] = false;
        }
        assert_int_equal(omap_len(m), len);
    }
    unsigned k = 0;
    for (struct omap_node *n = omap_seek(m, STR("")); n; n = omap_next(n), k++) {
        while (k < N && !present[k]) {
            k++;
        }
        assert_ptr_equal(omap_value(n), &tokens[k]);
    }
    omap_free(m, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ordered_walks_and_prefixes),
        cmocka_unit_test(random_operations_match_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
