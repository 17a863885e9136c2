#include "base/file.h"
#include "base/test.h"
#include "model/config.h"
#include <errno.h>

/* The pool of the mission's instructions. */
static const char good[] = "version = 4\n"
                           "node = \"node1\"\n"
                           "[aws]\n"
                           "region = \"ap-southeast-2\"\n"
                           "[network]\n"
                           "external_mode = \"pool\"\n"
                           "[[network.external_pools]]\n"
                           "name        = \"wan\"\n"
                           "source      = \"static\"\n"
                           "range_start = \"192.168.157.201\"\n"
                           "range_end   = \"192.168.157.250\"\n"
                           "gateway     = \"192.168.157.1\"\n"
                           "prefix_len  = 24\n"
                           "dns_servers = [\"1.1.1.1\", \"8.8.8.8\"]\n"
                           "[nodes.node1]\n"
                           "host = \"192.168.157.134\"\n"
                           "uid_base = 70000\n"
                           "[nodes.node1.awsgw]\n"
                           "port = 9998\n"
                           "[nodes.node2]\n"
                           "az = \"ap-southeast-2b\"\n";

static void test_reads_the_layout(void **state)
{
    AUTO(config_freep) struct config *c = NULL;
    struct err err = ERR_INIT;
    if (config_parse("f", str_c(good), &c, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    assert_string_equal(c->node, "node1");
    assert_string_equal(c->region, "ap-southeast-2");
    assert_string_equal(c->az, "ap-southeast-2a");
    assert_string_equal(c->host, "192.168.157.134");
    assert_string_equal(c->data_dir, "/var/lib/spinifex");
    assert_string_equal(c->uplink, "");
    assert_int_equal(c->awsgw_port, 9998);
    assert_int_equal(c->guest_mtu, 9001);
    assert_int_equal(c->uid_base, 70000);
    assert_int_equal(c->n_pools, 1);
    assert_string_equal(c->pools[0].range_end, "192.168.157.250");
    assert_int_equal(c->pools[0].n_dns_servers, 2);
    assert_int_equal(c->vcpu_overcommit_burstable, 4);
    assert_true(config_has_service(c, "vpcd"));
    assert_false(config_has_service(c, "predastore"));
    AUTO(arena_freep) struct arena *a = arena_new(1000);
    assert_string_equal(config_run_path(a, c, "state.sock"), "/run/spinifex/state.sock");
    assert_string_equal(config_data_path(a, c, "keys"), "/var/lib/spinifex/keys");
}

#define HEAD "version = 4\nnode = \"n\"\n[nodes.n]\n"
#define POOL "[[network.external_pools]]\nname = \"p\"\ngateway = \"10.0.0.1\"\n"

static void test_mistakes(void **state)
{
    static const struct {
        const char *text, *msg;
    } cases[] = {
        {"version = 4\nnode = \"m\"\n[nodes.n]\n",
         "f: node is 'm', but there is no table [nodes.m]"},
        {"version = 4\nnode = \"n\"\n", "f:1: key 'nodes' is missing"},
        {"version = 3\nnode = \"n\"\n[nodes.n]\n", "f:1: key 'version' must be from 4 to 4"},
        {HEAD "[network]\nexternal_mod = \"pool\"\n",
         "f:5: unknown key 'network.external_mod' (did you mean 'external_mode'?)"},
        {HEAD "[network]\nexternal_mode = \"nat\"\n",
         "f:5: key 'network.external_mode' is 'nat', which must be \"pool\""},
        {HEAD POOL "range_start = \"10.0.0.300\"\nrange_end = \"10.0.0.9\"\n",
         "f:7: key 'network.external_pools.range_start' is '10.0.0.300', which is not an IPv4 "
         "address"},
        {HEAD POOL "range_start = \"10.0.0.9\"\nrange_end = \"10.0.0.8\"\n",
         "f: network.external_pools 'p': range_start comes after range_end"},
        {HEAD POOL "range_start = \"10.0.1.8\"\nrange_end = \"10.0.1.9\"\n",
         "f: network.external_pools 'p': range and gateway are not in one network of "
         "prefix_len"},
        {HEAD POOL "range_start = \"10.0.0.0\"\nrange_end = \"10.0.0.9\"\n",
         "f: network.external_pools 'p': the range holds the network's own or its broadcast "
         "address"},
        {HEAD POOL "range_start = \"10.0.0.9\"\nrange_end = \"10.0.0.255\"\n",
         "f: network.external_pools 'p': the range holds the network's own or its broadcast "
         "address"},
        {HEAD "[[network.external_pools]]\nname = \"p\"\ngateway = \"10.0.0.9\"\n"
              "range_start = \"10.0.0.9\"\nrange_end = \"10.0.0.10\"\n",
         "f: network.external_pools 'p': the gateway lies in the range"},
        {HEAD
         "[[network.external_pools]]\nname = \"p\"\ngateway = \"10.0.0.1\"\nprefix_len = 8\n"
         "range_start = \"10.0.0.9\"\nrange_end = \"10.1.0.9\"\n",
         "f: network.external_pools 'p': the range has more than 65536 addresses"},
        {HEAD POOL "range_start = \"10.0.0.9\"\nrange_end = \"10.0.0.20\"\n"
                   "[[network.external_pools]]\nname = \"q\"\ngateway = \"10.0.0.1\"\n"
                   "range_start = \"10.0.0.20\"\nrange_end = \"10.0.0.21\"\n",
         "f: network.external_pools 'p' and 'q' overlap"},
        {HEAD POOL "range_start = \"10.0.0.9\"\nrange_end = \"10.0.0.20\"\nsource = \"dhcp\"\n",
         "f:9: key 'network.external_pools.source' is 'dhcp', which is not supported: use "
         "\"static\" with a range that your DHCP server does not give out"},
        {HEAD "data_dir = \"var\"\n",
         "f:4: key 'nodes.n.data_dir' is 'var', which must be an absolute path of at most 80 "
         "bytes"},
        {HEAD "services = [\"nats\"]\n",
         "f:4: key 'nodes.n.services' is 'nats', which must be state, awsgw, viperblock, vpcd "
         "or compute"},
        {HEAD "services = []\n",
         "f:4: key 'nodes.n.services' (number of items) must be from 1 to 16"},
        {HEAD "az = \"eu-west-1a\"\n", "f: nodes.n.az is 'eu-west-1a', but must be the region "
                                       "'ap-southeast-2' and one letter"},
        {HEAD "[nodes.\"a b\"]\n", "f: nodes.a b: a node's name may hold a-z, 0-9 and '-', at "
                                   "most 63 characters"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(config_freep) struct config *c = NULL;
        struct err err = ERR_INIT;
        assert_int_equal(config_parse("f", str_c(cases[i].text), &c, &err), -EINVAL);
        if (strcmp(err.msg, cases[i].msg) != 0) {
            fail_msg("got  %s\nwant %s", err.msg, cases[i].msg);
        }
        assert_string_equal(err.name, "BadConfig");
    }
}

static void test_reads_the_file_that_the_environment_names(void **state)
{
    char path[] = "/tmp/config_test.XXXXXX";
    AUTO_FD fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(file_write_all(fd, good, sizeof(good) - 1), 0);
    assert_int_equal(setenv("SPX_CONFIG", path, 1), 0);
    AUTO(config_freep) struct config *c = NULL;
    assert_int_equal(config_load(NULL, &c, NULL), 0);
    assert_string_equal(c->path, path);
    unlink(path);
    AUTO(config_freep) struct config *none = NULL;
    struct err err = ERR_INIT;
    assert_int_equal(config_load(NULL, &none, &err), -ENOENT);
    assert_non_null(strstr(err.msg, path));
    unsetenv("SPX_CONFIG");
}

static void test_doc_names_every_key(void **state)
{
    AUTO_BUF out;
    buf_init(&out, 20000);
    config_doc(&out);
    assert_non_null(strstr(buf_cstr(&out), "`network.external_pools[].range_start`"));
    assert_non_null(strstr(buf_cstr(&out), "`nodes.NAME.awsgw.port` | number | 9999 |"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_the_layout),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_reads_the_file_that_the_environment_names),
        cmocka_unit_test(test_doc_names_every_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
