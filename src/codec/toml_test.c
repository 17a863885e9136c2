#include "base/num.h"
#include "base/test.h"
#include "codec/nearest.h"
#include "codec/toml.h"
#include <errno.h>

struct pool {
    const char *name;
    uint64_t prefix_len;
    const char **dns;
    size_t n_dns;
};
struct node {
    const char *name;
    const char *host;
};
struct conf {
    uint64_t version, cache, wait_ns;
    bool is_loud;
    const char *region, *title;
    struct pool *pools;
    size_t n_pools;
    struct node *nodes;
    size_t n_nodes;
    uint64_t mtu;
};

static const char *check_lower(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] >= 'A' && s.p[i] <= 'Z') {
            return "has capital letters";
        }
    }
    return NULL;
}

static const struct toml_key pool_keys[] = {
    {.key = "name", .type = TOML_STR, .off = offsetof(struct pool, name), .is_required = true},
    {.key = "prefix_len",
     .type = TOML_INT,
     .off = offsetof(struct pool, prefix_len),
     .dflt = "24",
     .min = 1,
     .max = 32},
    {.key = "dns",
     .type = TOML_STR_LIST,
     .off = offsetof(struct pool, dns),
     .dflt = "1.1.1.1,8.8.8.8",
     .max = 3,
     .check = check_lower},
};
static const struct toml_schema pool_schema = {sizeof(struct pool), pool_keys,
                                               ARRAY_LEN(pool_keys)};
static const struct toml_key node_keys[] = {
    {.key = "host", .type = TOML_STR, .off = offsetof(struct node, host)},
};
static const struct toml_schema node_schema = {sizeof(struct node), node_keys,
                                               ARRAY_LEN(node_keys)};
static const struct toml_key aws_keys[] = {
    {.key = "region",
     .type = TOML_STR,
     .off = offsetof(struct conf, region),
     .dflt = "ap-southeast-2",
     .check = check_lower},
    {.key = "mtu",
     .type = TOML_INT,
     .off = offsetof(struct conf, mtu),
     .dflt = "9001",
     .doc = "MTU of guests."},
};
/* A table whose members lie in the outer struct: size 0 because nobody allocates it. */
static const struct toml_schema aws_schema = {0, aws_keys, ARRAY_LEN(aws_keys)};
static const struct toml_key conf_keys[] = {
    {.key = "version",
     .type = TOML_INT,
     .off = offsetof(struct conf, version),
     .is_required = true,
     .min = 1,
     .max = 4},
    {.key = "cache", .type = TOML_SIZE, .off = offsetof(struct conf, cache), .dflt = "64MiB"},
    {.key = "wait",
     .type = TOML_DURATION,
     .off = offsetof(struct conf, wait_ns),
     .dflt = "10s"},
    {.key = "loud", .type = TOML_BOOL, .off = offsetof(struct conf, is_loud), .dflt = "true"},
    {.key = "title", .type = TOML_STR, .off = offsetof(struct conf, title), .max = 20},
    {.key = "aws", .type = TOML_TABLE, .sub = &aws_schema},
    {.key = "pools",
     .type = TOML_TABLES,
     .off = offsetof(struct conf, pools),
     .sub = &pool_schema},
    {.key = "nodes",
     .type = TOML_NAMED,
     .off = offsetof(struct conf, nodes),
     .sub = &node_schema,
     .max = 2},
};
static const struct toml_schema conf_schema = {sizeof(struct conf), conf_keys,
                                               ARRAY_LEN(conf_keys)};

static void test_reads_everything(void **state)
{
    const char *text = "# a comment\r\n"
                       "version = 0_3 # why not\n"
                       "version_ = 1\n";
    AUTO(arena_freep) struct arena *a = arena_new(1 << 16);
    struct conf c;
    assert_int_equal(toml_load(&conf_schema, a, "f", str_c(text), &c, NULL), -EINVAL);
    text = "\xef\xbb\xbf";
    assert_int_equal(toml_load(&conf_schema, a, "f", str_c(text), &c, NULL), -EINVAL);

    text = "# a comment\r\n"
           "version = 3 # trailing\r\n"
           "\tcache = \"2GiB\"\n"
           "wait=\"500ms\"\n"
           "loud = false\n"
           "title = \"a\\tb \\\"q\\\" \\u00e4\"\n"
           "\n"
           "[[pools]]\n"
           "name = 'C:\\raw'\n"
           "dns = [ # none of them\n  \"9.9.9.9\",\n  \"x\", ]\n"
           "[nodes.node1]\n"
           "host = \"h1\"\n"
           "[nodes.\"node 2\"]\n"
           "[[pools]]\n"
           "name = \"two\"\n"
           "prefix_len = 1_6\n"
           "dns = []\n"
           "[aws]\n"
           "region = \"eu\"";
    struct err err = ERR_INIT;
    if (toml_load(&conf_schema, a, "f", str_c(text), &c, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    assert_int_equal(c.version, 3);
    assert_int_equal(c.cache, UINT64_C(2) << 30);
    assert_int_equal(c.wait_ns, 500000000);
    assert_false(c.is_loud);
    assert_string_equal(c.title, "a\tb \"q\" \xc3\xa4");
    assert_string_equal(c.region, "eu");
    assert_int_equal(c.mtu, 9001);
    assert_int_equal(c.n_pools, 2);
    assert_string_equal(c.pools[0].name, "C:\\raw");
    assert_int_equal(c.pools[0].prefix_len, 24);
    assert_int_equal(c.pools[0].n_dns, 2);
    assert_string_equal(c.pools[0].dns[1], "x");
    assert_int_equal(c.pools[1].prefix_len, 16);
    assert_int_equal(c.pools[1].n_dns, 0);
    assert_int_equal(c.n_nodes, 2);
    assert_string_equal(c.nodes[0].name, "node1");
    assert_string_equal(c.nodes[0].host, "h1");
    assert_string_equal(c.nodes[1].name, "node 2");
    assert_string_equal(c.nodes[1].host, "");
}

static void test_inline_tables(void **state)
{
    const char *text = "version = 1\n"
                       "aws={mtu=1500,region = \"eu}\"} # comment\n"
                       "nodes = { a = { host = \"h1\" }, b.host = \"h2\" }\n";
    AUTO(arena_freep) struct arena *a = arena_new(1 << 16);
    struct conf c;
    struct err err = ERR_INIT;
    if (toml_load(&conf_schema, a, "f", str_c(text), &c, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    assert_int_equal(c.mtu, 1500);
    assert_string_equal(c.region, "eu}");
    assert_int_equal(c.n_nodes, 2);
    assert_string_equal(c.nodes[0].host, "h1");
    assert_string_equal(c.nodes[1].host, "h2");
    assert_int_equal(toml_load(&conf_schema, a, "f", STR("version = 1\naws = { }"), &c, NULL),
                     0);
    assert_int_equal(c.mtu, 9001);
}

static void test_defaults(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 16);
    struct conf c;
    assert_int_equal(
        toml_load(&conf_schema, a, "f", STR("version=1\n[[pools]]\nname=\"x\""), &c, NULL), 0);
    assert_int_equal(c.cache, 64 << 20);
    assert_int_equal(c.wait_ns, UINT64_C(10000000000));
    assert_true(c.is_loud);
    assert_string_equal(c.title, "");
    assert_string_equal(c.region, "ap-southeast-2");
    assert_int_equal(c.pools[0].n_dns, 2);
    assert_string_equal(c.pools[0].dns[1], "8.8.8.8");
}

static void test_mistakes(void **state)
{
    static const struct {
        const char *text, *msg;
    } cases[] = {
        {"version = 1\nregoin = \"x\"", "f:2: unknown key 'regoin'"},
        {"version = 1\n[aws]\nregoin = \"x\"",
         "f:3: unknown key 'aws.regoin' (did you mean 'region'?)"},
        {"version = 1\n[nodes.n]\nhots = \"x\"",
         "f:3: unknown key 'nodes.n.hots' (did you mean 'host'?)"},
        {"version = 1\n[[pool]]\n", "f:2: unknown key 'pool' (did you mean 'pools'?)"},
        {"", "f:1: key 'version' is missing"},
        {"version = 1\n[[pools]]\n", "f:2: key 'pools.name' is missing"},
        {"version = 5", "f:1: key 'version' must be from 1 to 4"},
        {"version = -1", "f:1: key 'version' must be a whole number"},
        {"version = \"1\"", "f:1: key 'version' must be a whole number"},
        {"version = 1.5", "f:1: '1.5' is not a value: expected a \"string\", a whole number, "
                          "true, false or a [list]"},
        {"version = 01",
         "f:1: '01' is not a value: expected a \"string\", a whole number, true, "
         "false or a [list]"},
        {"version = 99999999999999999999",
         "f:1: '99999999999999999999' is not a value: expected a \"string\", a whole number, "
         "true, false or a [list]"},
        {"version =", "f:1: '' is not a value: expected a \"string\", a whole number, true, "
                      "false or a [list]"},
        {"version = 1\nversion = 1", "f:2: 'version' is already set (line 1)"},
        {"version = 1 2", "f:1: unexpected '2' after the value"},
        {"version 1", "f:1: expected '=' after 'version'"},
        {"= 1", "f:1: expected a key"},
        {"version = 1\ncache = \"64 MB!\"", "f:2: key 'cache' must be a size like \"64MiB\""},
        {"version = 1\ncache = \"99999999TiB\"",
         "f:2: key 'cache' must be a size like \"64MiB\""},
        {"version = 1\nwait = 5", "f:2: key 'wait' must be a duration like \"10s\""},
        {"version = 1\nloud = 1", "f:2: key 'loud' must be true or false"},
        {"version = 1\ntitle = \"123456789012345678901\"",
         "f:2: key 'title' (length) must be from 0 to 20"},
        {"version = 1\ntitle = \"a", "f:2: a string does not end in \" on its line"},
        {"version = 1\ntitle = \"\"\"a\"\"\"",
         "f:2: strings over several lines are not supported"},
        {"version = 1\ntitle = \"\\x41\"", "f:2: unknown escape in a string"},
        {"version = 1\ntitle = \"\\ud800\"", "f:2: unknown escape in a string"},
        {"version = 1\ntitle = \"\\u0000\"", "f:2: unknown escape in a string"},
        {"version = 1\naws = { mtu = 1", "f:2: expected ',' or '}' in an inline table"},
        {"version = 1\naws = { mtu = 1\n}", "f:2: expected ',' or '}' in an inline table"},
        {"version = 1\naws = { mtu = 1, }", "f:2: expected a key"},
        {"version = 1\naws = {} x", "f:2: unexpected 'x' after the value"},
        {"version = 1\naws = { mtu = 1, mtu = 2 }", "f:2: 'mtu' is already set (line 2)"},
        {"version = 1\naws = { mtu = 1 }\naws.region = \"x\"",
         "f:3: 'aws' is whole already (line 2): nothing can be added"},
        {"version = 1\naws = { mtu = 1 }\n[aws]", "f:3: 'aws' is already there (line 2)"},
        {"version = 1\naws = { mtu = 1 }\n[aws.x]",
         "f:3: 'aws' is whole already (line 2): nothing can be added"},
        {"version = 1\naws = { mtv = 1 }", "f:2: unknown key 'aws.mtv' (did you mean 'mtu'?)"},
        {"a={a={a={a={a={a={a={a={a={}}}}}}}}}", "f:1: tables are nested deeper than 8 levels"},
        {"version = 1\n[[pools]]\nname=\"\"\ndns=[{}]",
         "f:4: tables in a list are written [[table]]"},
        {"version = 1\naws = 1", "f:2: key 'aws' must be a table [aws]"},
        {"version = 1\n[aws]\n[aws]", "f:3: 'aws' is already there (line 2)"},
        {"version = 1\n[aws]\n[[aws]]", "f:3: 'aws' is already there (line 2)"},
        {"version = 1\n[version.x]", "f:2: 'version' is a value (line 1), not a table"},
        {"version = 1\n[aws", "f:2: a table's name does not end in ]"},
        {"version = 1\n[aws]\nregion = \"EU\"",
         "f:3: key 'aws.region' is 'EU', which has capital letters"},
        {"version = 1\n[[pools]]\nname=\"\"\ndns=[\"A\"]",
         "f:4: key 'pools.dns' is 'A', which has capital letters"},
        {"version = 1\n[[pools]]\nname=\"\"\ndns=[1]",
         "f:4: key 'pools.dns' must be a list of strings"},
        {"version = 1\n[[pools]]\nname=\"\"\ndns=[[]]",
         "f:4: lists of lists are not supported"},
        {"version = 1\n[[pools]]\nname=\"\"\ndns=[\"a\" \"b\"]",
         "f:4: expected ',' or ']' in a list"},
        {"version = 1\n[nodes.a]\n[nodes.b]\n[nodes.c]",
         "f:2: key 'nodes' (number of tables) must be from 0 to 2"},
        {"version = 1\n[nodes]\nx = 1", "f:3: key 'nodes.x' must be a table"},
        {"version = 1\n[pools]", "f:2: key 'pools' must be tables [[pools]]"},
        {"version = 1\n[[nodes]]", "f:2: key 'nodes' must be tables [nodes.NAME]"},
        {"a.b.c.d.e.f.g.h.i = 1", "f:1: keys are nested deeper than 8 levels"},
        {"version = 1 # \xff", "f: the file is not UTF-8 text"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(arena_freep) struct arena *a = arena_new(1 << 16);
        struct conf c;
        struct err err = ERR_INIT;
        assert_int_equal(toml_load(&conf_schema, a, "f", str_c(cases[i].text), &c, &err),
                         -EINVAL);
        if (strcmp(err.msg, cases[i].msg) != 0) {
            fail_msg("got  %s\nwant %s", err.msg, cases[i].msg);
        }
        assert_int_equal(c.version, 0);
    }
}

static void test_units(void **state)
{
    uint64_t v = 0;
    assert_int_equal(toml_parse_size(STR("10 GB"), &v), 0);
    assert_int_equal(v, UINT64_C(10000000000));
    assert_int_equal(toml_parse_size(STR("7"), &v), 0);
    assert_int_equal(v, 7);
    assert_int_equal(toml_parse_size(STR("GiB"), &v), -EINVAL);
    assert_int_equal(toml_parse_size(STR("-1"), &v), -EINVAL);
    assert_int_equal(toml_parse_size(STR("99999999999999999999"), &v), -EINVAL);
    assert_int_equal(toml_parse_size(STR("16777217TiB"), &v), -ERANGE);
    assert_int_equal(toml_parse_duration(STR("2d"), &v), 0);
    assert_int_equal(v, UINT64_C(172800000000000));
    assert_int_equal(toml_parse_duration(STR("2"), &v), -EINVAL);
    AUTO_BUF out;
    buf_init(&out, 100);
    toml_quote(STR("a\"\\\n\x7f"), &out);
    assert_string_equal(buf_cstr(&out), "\"a\\\"\\\\\\u000a\\u007f\"");
}

static void test_nearest(void **state)
{
    static const char *const words[] = {"init", "account", "images", "state", "cert"};
    static const struct {
        const char *typed, *want;
    } cases[] = {
        {"acount", "account"}, {"image", "images"}, {"inti", "init"}, {"sate", "state"},
        {"zzzzz", NULL},       {"", NULL},          {"x", NULL}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *got =
            nearest_word(str_c(cases[i].typed), words, ARRAY_LEN(words), sizeof(words[0]));
        if (cases[i].want ? !got || strcmp(got, cases[i].want) != 0 : got != NULL) {
            fail_msg("%s: got %s", cases[i].typed, got ? got : "nothing");
        }
    }
}

static void test_doc(void **state)
{
    AUTO_BUF out;
    buf_init(&out, 10000);
    toml_doc(&conf_schema, &out);
    assert_non_null(strstr(buf_cstr(&out), "| `aws.mtu` | number | 9001 | MTU of guests. |\n"));
    assert_non_null(strstr(buf_cstr(&out), "| `nodes.NAME.host` | string |"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_everything),
        cmocka_unit_test(test_inline_tables),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_doc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
