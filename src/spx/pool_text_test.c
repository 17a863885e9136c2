/* The pool of a configuration moves to a LAN; nothing else of the text changes. */
#include "spx/pool_text.h"

#include "base/test.h"

#include <errno.h>
#include <string.h>

#define TAIL                                                                        \
    "# of this node\n[nodes.n]\nhost = \"192.168.1.5\" # mine\ndata_dir = \"/d\"\n" \
    "run_dir = \"/r\"\n"
#define HEAD "# top\nversion = 4\nnode = \"n\"\n\n"

static const struct pool_lan lan = {.uplink = "wlan0",
                                    .first = 0xc0a801c8,
                                    .last = 0xc0a801e6,
                                    .gateway = 0xc0a80101,
                                    .prefix_len = 24};
#define NEW_POOL                                                                      \
    "[[network.external_pools]]\nname = \"lan\"\nsource = \"static\"\nrange_start = " \
    "\"192.168.1.200\"\nrange_end = \"192.168.1.230\"\ngateway = \"192.168.1.1\"\n"   \
    "prefix_len = 24\ndns_servers = ["

static void test_only_the_pool_changes(void **state)
{
    static const struct {
        const char *name, *text, *want;
    } cases[] = {
        {"as init makes it",
         HEAD
         "[network]\nexternal_mode = \"pool\"\n# LAN\nuplink = \"\"  # none yet\n\n# Pools\n"
         "[[network.external_pools]]\nname = \"wan\"\nsource = \"static\" # was\n"
         "range_start = \"198.51.100.10\"\nrange_end = \"198.51.100.250\"\n"
         "gateway = \"198.51.100.1\"\nprefix_len = 24\ndns_servers = [\"1.1.1.1\"]\n\n" TAIL,
         HEAD
         "[network]\nexternal_mode = \"pool\"\n# LAN\nuplink = \"wlan0\" # none yet\n\n# "
         "Pools\n" NEW_POOL "\"1.1.1.1\"]\n\n"
         "[[network.external_pools]]\nname = \"wan\"\nsource = \"retired\" # was\n"
         "range_start = \"198.51.100.10\"\nrange_end = \"198.51.100.250\"\n"
         "gateway = \"198.51.100.1\"\nprefix_len = 24\ndns_servers = [\"1.1.1.1\"]\n\n" TAIL},
        {"a pool that overlaps is replaced, its comments stay",
         HEAD
         "[network]\nuplink = \"eth0\"\n[[network.external_pools]]\n# ours\nname = \"lan\"\n"
         "range_start = \"192.168.1.210\"\nrange_end = \"192.168.1.240\"\n"
         "gateway = \"192.168.1.1\"\n" TAIL,
         HEAD "[network]\nuplink = \"wlan0\"\n" NEW_POOL "]\n\n# ours\n" TAIL},
        {"no table, no pool", HEAD TAIL,
         HEAD TAIL "\n[network]\nuplink = \"wlan0\"\n\n" NEW_POOL "]\n\n"},
        {"no uplink, and a pool of that name elsewhere",
         HEAD
         "[network]\nguest_mtu = 1500\n[[network.external_pools]]\nname = \"lan\"\n"
         "range_start = \"10.0.0.2\"\nrange_end = \"10.0.0.9\"\ngateway = \"10.0.0.1\"\n" TAIL,
         NULL},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_BUF out;
        AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
        AUTO(config_freep) struct config *c = NULL;
        struct err err = ERR_INIT;
        buf_init(&out, 1u << 20);
        if (pool_text_lan("f", str_c(cases[i].text), &lan, a, &out, &err) < 0) {
            fail_msg("%s: %s in\n%s", cases[i].name, err.msg, buf_cstr(&out));
        }
        if (cases[i].want && strcmp(buf_cstr(&out), cases[i].want) != 0) {
            fail_msg("%s:\n%s", cases[i].name, buf_cstr(&out));
        }
        assert_int_equal(config_parse("f", buf_str(&out), &c, NULL), 0);
        assert_string_equal(c->pools[0].range_end, "192.168.1.230");
        assert_string_equal(c->uplink, "wlan0");
        if (!cases[i].want) {
            assert_string_equal(c->pools[0].name, "lan2");
            assert_string_equal(c->pools[1].source, "retired");
            assert_int_equal(c->guest_mtu, 1500);
        }
        /* Once more changes nothing but where blank lines are. */
        AUTO_BUF again;
        buf_init(&again, 1u << 20);
        assert_int_equal(pool_text_lan("f", buf_str(&out), &lan, a, &again, NULL), 0);
    }
}

static void test_a_text_that_lines_do_not_show_is_refused(void **state)
{
    static const char text[] =
        HEAD "[ network ]\nuplink = \"eth0\"\n" TAIL; /* TOML, but not how we look for it */
    AUTO_BUF out;
    AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
    struct err err = ERR_INIT;
    (void)state;
    buf_init(&out, 1u << 20);
    assert_true(pool_text_lan("f", str_c(text), &lan, a, &out, &err) < 0);
    assert_string_equal(err.name, "BadConfig");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_the_pool_changes),
        cmocka_unit_test(test_a_text_that_lines_do_not_show_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
