/* Arguments, tables, and what init asks of the host. */
#include "base/test.h"
#include "model/config.h"
#include "model/network.h"
#include "spx/cmd.h"
#include "spx/host.h"
#include "spx/init_text.h"
#include "spx/table.h"
#include <errno.h>
#include <stdio.h>

static int n_calls;
static char seen[200];

static int note(struct spx *s, struct err *err)
{
    n_calls++;
    snprintf(seen, sizeof(seen), "%s|%zu|%s|%s|%d", s->path, s->n_pos,
             s->n_pos ? s->pos[0] : "", spx_value(s, "--size") ? spx_value(s, "--size") : "-",
             s->is_json);
    return spx_is_set(s, "--fail") ? fail(err, -EIO, "Broken", "it broke") : 0;
}

static int take_number(struct spx *s, struct err *err)
{
    uint64_t n = 0;
    int r = spx_number(s, "--size", 2, 9, 5, &n);
    snprintf(seen, sizeof(seen), "%d", (int)n);
    return r;
}

static int take_rest(struct spx *s, struct err *err)
{
    snprintf(seen, sizeof(seen), "%s %s", s->rest[0], s->rest[1]);
    return 0;
}

static const struct spx_opt opts[] = {{"--size", "N", "size"}, {"--fail", NULL, "fails"}};
static const struct spx_cmd subs[] = {
    {.name = "one",
     .args = "X",
     .help = "h",
     .min_pos = 1,
     .max_pos = 1,
     .fn = note,
     .opts = opts,
     .n_opts = 2},
    {.name = "num", .help = "h", .fn = take_number, .opts = opts, .n_opts = 1},
    {.name = "rest", .help = "h", .fn = take_rest, .takes_rest = true},
};
static const struct spx_cmd root = {
    .name = "t", .help = "h", .sub = subs, .n_sub = ARRAY_LEN(subs)};

static void test_arguments(void **state)
{
    static const struct {
        const char *argv[8];
        int status;
        const char *seen; /* NULL: the command was not run */
    } cases[] = {
        {{"t", "one", "x"}, SPX_EXIT_OK, "t one|1|x|-|0"},
        {{"t", "one", "--size", "7", "x"}, SPX_EXIT_OK, "t one|1|x|7|0"},
        {{"t", "one", "x", "--size=7", "--output", "json"}, SPX_EXIT_OK, "t one|1|x|7|1"},
        {{"t", "one", "--", "--size"}, SPX_EXIT_OK, "t one|1|--size|-|0"},
        {{"t", "one", "-"}, SPX_EXIT_OK, "t one|1|-|-|0"},
        {{"t", "one", "x", "--fail"}, SPX_EXIT_FAILED, "t one|1|x|-|0"},
        {{"t", "num"}, SPX_EXIT_OK, "5"},
        {{"t", "num", "--size", "9"}, SPX_EXIT_OK, "9"},
        {{"t", "num", "--size", "10"}, SPX_EXIT_USAGE, "5"},
        {{"t", "num", "--size", "1"}, SPX_EXIT_USAGE, "1"},
        {{"t", "num", "--size", "x"}, SPX_EXIT_USAGE, "5"},
        {{"t", "rest", "--size", "--help"}, SPX_EXIT_OK, "--size --help"},
        {{"t", "one", "--help"}, SPX_EXIT_OK, NULL},
        {{"t", "--help"}, SPX_EXIT_OK, NULL},
        {{"t", "help"}, SPX_EXIT_OK, NULL},
        {{"t"}, SPX_EXIT_USAGE, NULL},
        {{"t", "two"}, SPX_EXIT_USAGE, NULL},
        {{"t", "one"}, SPX_EXIT_USAGE, NULL},
        {{"t", "one", "x", "y"}, SPX_EXIT_USAGE, NULL},
        {{"t", "one", "x", "--size"}, SPX_EXIT_USAGE, NULL},
        {{"t", "one", "x", "--fail=1"}, SPX_EXIT_USAGE, NULL},
        {{"t", "one", "x", "--sise", "1"}, SPX_EXIT_USAGE, NULL},
        {{"t", "one", "x", "--output", "xml"}, SPX_EXIT_USAGE, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int argc = 0;
        char *argv[9] = {NULL};
        while (argc < 8 && cases[i].argv[argc]) {
            argv[argc] = (char *)(uintptr_t)cases[i].argv[argc];
            argc++;
        }
        seen[0] = 0;
        int status = spx_main(&root, argc, argv);
        if (status != cases[i].status ||
            strcmp(seen, cases[i].seen ? cases[i].seen : "") != 0) {
            fail_msg("case %zu: status %d, saw '%s'", i, status, seen);
        }
    }
}

static void test_tables(void **state)
{
    static const struct table_col cols[] = {
        {"NAME", "name"}, {"VMs", "vms"}, {"SERVICES", "services"}};
    AUTO(arena_freep) struct arena *a = arena_new(100000);
    const struct str services[] = {STR("awsgw"), STR("vpcd")};
    struct table *t = table_new(a, cols, ARRAY_LEN(cols));
    AUTO_BUF out;
    buf_init(&out, 10000);
    table_text(t, &out);
    assert_string_equal(buf_cstr(&out), "NAME | VMs | SERVICES\n");
    table_cstr(t, "node1\x1b[31m");
    table_u64(t, 12);
    table_list(t, services, 2);
    table_str(t, STR_NONE);
    table_num(t, 2048, STR("2 KiB"));
    table_list(t, services, 0);
    table_cstr(t, "\xc3\xa4");
    table_u64(t, 0);
    table_cstr(t, "");
    assert_int_equal(table_rows(t), 3);
    buf_clear(&out);
    table_text(t, &out);
    assert_string_equal(buf_cstr(&out), "NAME       | VMs   | SERVICES\n"
                                        "node1?[31m | 12    | awsgw,vpcd\n"
                                        "-          | 2 KiB | -\n"
                                        "\xc3\xa4          | 0     | -\n");
    buf_clear(&out);
    table_json(t, &out);
    assert_string_equal(
        buf_cstr(&out),
        "[{\"name\":\"node1\\u001b[31m\",\"vms\":12,\"services\":[\"awsgw\",\"vpcd\"]},"
        "{\"name\":null,\"vms\":2048,\"services\":[]},"
        "{\"name\":\"\xc3\xa4\",\"vms\":0,\"services\":\"\"}]\n");
}

static void test_ages_and_sizes(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(100000);
    const uint64_t s = 1000000000;
    static const struct {
        uint64_t age_s;
        const char *want;
    } ages[] = {{0, "0s"},      {119, "119s"},      {120, "2m"},     {7199, "119m"},
                {7200, "2h0m"}, {172799, "47h59m"}, {200000, "2d7h"}};
    for (size_t i = 0; i < ARRAY_LEN(ages); i++) {
        assert_str(table_age(a, s, s + ages[i].age_s * s), ages[i].want);
    }
    assert_str(table_age(a, 5 * s, s), "0s");
    assert_str(table_size(a, 0), "0 B");
    assert_str(table_size(a, 1023), "1023 B");
    assert_str(table_size(a, 1536), "1.5 KiB");
    assert_str(table_size(a, UINT64_C(8) << 30), "8 GiB");
    assert_str(table_size(a, UINT64_MAX), "16383 PiB");
}

static void test_name_servers(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(100000);
    struct str_list l = host_name_servers(
        a, "# nameserver 9.9.9.9\nnameserver 127.0.0.53\n nameserver\t10.0.0.2 \n"
           "nameserver fe80::1\nnameserver 0.0.0.0\nnameserver 1.1.1.1\nsearch x\n"
           "nameserver 2.2.2.2\nnameserver 3.3.3.3\n");
    assert_int_equal(l.n, 3);
    assert_str(l.v[0], "10.0.0.2");
    assert_str(l.v[1], "1.1.1.1");
    assert_str(l.v[2], "2.2.2.2");
    assert_int_equal(host_name_servers(a, "").n, 0);
}

static void test_host(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(1000000);
    struct str_list l = {0};
    uint32_t ip = 0;
    assert_int_equal(host_names(a, "first.example", "node1", &l, NULL), 0);
    assert_str(l.v[0], "first.example");
    bool has_loopback = false;
    for (size_t i = 0; i < l.n; i++) {
        has_loopback = has_loopback || str_eqc(l.v[i], "127.0.0.1");
        for (size_t k = 0; k < i; k++) {
            assert_false(str_ieq(l.v[i], l.v[k]));
        }
    }
    assert_true(has_loopback);
    assert_int_equal(ip4_parse(host_main_ip(a), &ip), 0);
    assert_true(host_has_address_in(0x7f000000, 0xff000000));
    assert_false(host_has_address_in(0xf0000000, 0xffffff00));
}

static void test_a_new_configuration_is_good(void **state)
{
    AUTO_BUF text;
    AUTO(config_freep) struct config *c = NULL;
    struct str servers[] = {STR("1.1.1.1"), STR("8.8.8.8")};
    const struct init_text t = {.node = "edge-7",
                                .host = "10.0.0.5",
                                .region = "eu-west-9",
                                .az = "eu-west-9c",
                                .data_dir = "/d/a",
                                .run_dir = "/r",
                                .uid_base = 70000,
                                .port = 9999,
                                .s3_port = 8443,
                                .metrics_port = 9998,
                                .pool_net = 0xc6336400,
                                .dns_servers = {servers, 2}};
    struct err err = ERR_INIT;
    buf_init(&text, 10000);
    init_text(&t, &text);
    if (config_parse("f", buf_str(&text), &c, &err) < 0) {
        fail_msg("%s in\n%s", err.msg, buf_cstr(&text));
    }
    assert_string_equal(c->node, "edge-7");
    assert_string_equal(c->az, "eu-west-9c");
    assert_string_equal(c->data_dir, "/d/a");
    assert_int_equal(c->uid_base, 70000);
    assert_int_equal(c->n_pools, 1);
    assert_string_equal(c->pools[0].range_start, "198.51.100.10");
    assert_string_equal(c->pools[0].dns_servers[1], "8.8.8.8");
    assert_int_equal(c->predastore.port, 8443);
    assert_int_equal(c->predastore.n_drives, 1);
    assert_string_equal(c->predastore.drives[0], "/d/a/predastore/drive1");
    assert_int_equal(c->predastore.rs_data, 1);
    assert_int_equal(c->predastore.rs_parity, 0);
}

static void test_a_new_configuration_spreads_objects_over_the_drives(void **state)
{
    AUTO_BUF text;
    AUTO(config_freep) struct config *c = NULL;
    struct str drives[] = {STR("/disk/1"), STR("/disk/2/s3"), STR("/disk/3")};
    const struct init_text t = {.node = "n",
                                .host = "h",
                                .region = "eu-west-9",
                                .az = "",
                                .data_dir = "/d",
                                .run_dir = "/r",
                                .port = 9999,
                                .s3_port = 8444,
                                .metrics_port = 9998,
                                .drives = {drives, 3},
                                .pool_net = 0xc6336400};
    buf_init(&text, 10000);
    init_text(&t, &text);
    assert_int_equal(config_parse("f", buf_str(&text), &c, NULL), 0);
    assert_int_equal(c->predastore.port, 8444);
    assert_int_equal(c->predastore.n_drives, 3);
    assert_string_equal(c->predastore.drives[1], "/disk/2/s3");
    assert_int_equal(c->predastore.rs_data, 2);
    assert_int_equal(c->predastore.rs_parity, 1);
    assert_true(c->predastore.is_encrypted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_ages_and_sizes),
        cmocka_unit_test(test_name_servers),
        cmocka_unit_test(test_host),
        cmocka_unit_test(test_a_new_configuration_is_good),
        cmocka_unit_test(test_a_new_configuration_spreads_objects_over_the_drives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
