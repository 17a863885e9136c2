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
                           "[nodes.node1.predastore]\n"
                           "port = 8444\n"
                           "drives = [\"/d/1\", \"/d/2\", \"/d/3\", \"/d/11\"]\n"
                           "rs = { data = 2, parity = 1 }\n"
                           "encrypt = false\n"
                           "domains = [\"s3.example.net\"]\n"
                           "inline_max = \"64KiB\"\n"
                           "near_full_pct = 80\n"
                           "full_pct = 85\n"
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
    assert_true(config_has_service(c, "predastore"));
    assert_false(config_has_service(c, "nats"));
    AUTO(arena_freep) struct arena *a = arena_new(1000);
    assert_string_equal(config_run_path(a, c, "state.sock"), "/run/spinifex/state.sock");
    assert_string_equal(config_data_path(a, c, "keys"), "/var/lib/spinifex/keys");
}

static void test_reads_the_store_of_objects(void **state)
{
    AUTO(config_freep) struct config *c = NULL;
    assert_int_equal(config_parse("f", str_c(good), &c, NULL), 0);
    const struct config_predastore *p = &c->predastore;
    assert_int_equal(p->port, 8444);
    assert_int_equal(p->n_drives, 4);
    assert_string_equal(p->drives[3], "/d/11");
    assert_int_equal(p->rs_data, 2);
    assert_int_equal(p->rs_parity, 1);
    assert_false(p->is_encrypted);
    assert_int_equal(p->n_domains, 1);
    assert_string_equal(p->domains[0], "s3.example.net");
    assert_int_equal(p->inline_max, 64 << 10);
    assert_int_equal(p->near_full_pct, 80);
    assert_int_equal(p->full_pct, 85);
}

/* A file of the time before there were objects is a good one. */
static void test_objects_have_defaults(void **state)
{
    AUTO(config_freep) struct config *c = NULL;
    const char *text = "version = 4\nnode = \"n\"\n[nodes.n]\ndata_dir = \"/x\"\n";
    assert_int_equal(config_parse("f", str_c(text), &c, NULL), 0);
    const struct config_predastore *p = &c->predastore;
    assert_int_equal(p->port, 8443);
    assert_int_equal(p->n_drives, 1);
    assert_string_equal(p->drives[0], "/x/predastore/drive1");
    assert_int_equal(p->rs_data, 1);
    assert_int_equal(p->rs_parity, 0);
    assert_true(p->is_encrypted);
    assert_int_equal(p->n_domains, 2);
    assert_string_equal(p->domains[0], "s3.ap-southeast-2.compute.internal");
    assert_string_equal(p->domains[1], "s3.localhost");
    assert_int_equal(p->inline_max, 131072);
    assert_int_equal(p->near_full_pct, 90);
    assert_int_equal(p->full_pct, 95);
    assert_int_equal(p->max_conns_per_ip, 6144);
}

static void test_code_follows_the_number_of_drives(void **state)
{
    static const struct {
        size_t n;
        uint64_t data, parity;
    } cases[] = {{0, 1, 0}, {1, 1, 0}, {2, 1, 1}, {3, 2, 1},   {4, 3, 1},
                 {5, 4, 1}, {6, 4, 2}, {7, 5, 2}, {18, 16, 2}, {24, 16, 2}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint64_t data = 99, parity = 99;
        config_default_rs(cases[i].n, &data, &parity);
        assert_int_equal(data, cases[i].data);
        assert_int_equal(parity, cases[i].parity);
    }
}

#define HEAD  "version = 4\nnode = \"n\"\n[nodes.n]\n"
#define STORE "[nodes.n.predastore]\n"
#define POOL  "[[network.external_pools]]\nname = \"p\"\ngateway = \"10.0.0.1\"\n"

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
         "f:4: key 'nodes.n.services' is 'nats', which must be state, awsgw, viperblock, vpcd, "
         "compute or predastore"},
        {HEAD "services = []\n",
         "f:4: key 'nodes.n.services' (number of items) must be from 1 to 16"},
        {HEAD "az = \"eu-west-1a\"\n", "f: nodes.n.az is 'eu-west-1a', but must be the region "
                                       "'ap-southeast-2' and one letter"},
        {HEAD STORE "port = 0\n", "f:5: key 'nodes.n.predastore.port' must be from 1 to 65535"},
        {HEAD STORE "port = 9999\n",
         "f: nodes.n: awsgw.port and predastore.port are both 9999"},
        {HEAD STORE "drives = [\"d\"]\n", "f:5: key 'nodes.n.predastore.drives' is 'd', which "
                                          "must be an absolute path of at most 200 bytes"},
        {HEAD STORE "drives = [\"/d/../e\"]\n",
         "f:5: key 'nodes.n.predastore.drives' is '/d/../e', which must be written without "
         "'//', '/.', '/..' and a '/' at the end"},
        {HEAD STORE "drives = [\"/d/\"]\n",
         "f:5: key 'nodes.n.predastore.drives' is '/d/', which must be written without "
         "'//', '/.', '/..' and a '/' at the end"},
        {HEAD STORE "drives = [\"/d/1\", \"/d/2\", \"/d/1\"]\n",
         "f: nodes.n.predastore.drives: '/d/1' and '/d/1' are one folder, or one lies in the "
         "other"},
        {HEAD STORE "drives = [\"/d/1\", \"/d\"]\n",
         "f: nodes.n.predastore.drives: '/d/1' and '/d' are one folder, or one lies in the "
         "other"},
        {HEAD STORE "rs = { data = 0, parity = 0 }\n",
         "f:5: key 'nodes.n.predastore.rs.data' must be from 1 to 16"},
        {HEAD STORE "rs = { data = 1, parity = 9 }\n",
         "f:5: key 'nodes.n.predastore.rs.parity' must be from 0 to 8"},
        {HEAD STORE "rs = { data = 2, parity = 1 }\n",
         "f: nodes.n.predastore.rs: data 2 and parity 1 need 3 drives, but there are 1"},
        {HEAD STORE "rs = { parity = 1 }\n",
         "f: nodes.n.predastore.rs: parity is set, but data is not"},
        {HEAD STORE "domains = [\"10.0.0.1\"]\n",
         "f:5: key 'nodes.n.predastore.domains' is '10.0.0.1', which is an address, not a "
         "domain name"},
        {HEAD STORE "inline_max = \"1MiB\"\n",
         "f:5: key 'nodes.n.predastore.inline_max' must be from 0 to 229376"},
        {HEAD STORE "near_full_pct = 95\n",
         "f: nodes.n.predastore: near_full_pct 95 is not below full_pct 95"},
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
        cmocka_unit_test(test_reads_the_store_of_objects),
        cmocka_unit_test(test_objects_have_defaults),
        cmocka_unit_test(test_code_follows_the_number_of_drives),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_reads_the_file_that_the_environment_names),
        cmocka_unit_test(test_doc_names_every_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
