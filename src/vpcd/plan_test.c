#include "vpcd/plan.h"

#include "vpcd/ruleset.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define VPC  "vpc-0123456789abcdef0"
#define SUB  "subnet-0123456789abcdef0"
#define SG_A "sg-0000000000000000a"
#define SG_B "sg-0000000000000000b"
#define IGW  "igw-0123456789abcdef0"
#define IP(a, b, c, d) \
    ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (uint32_t)(d))

struct world {
    struct arena *a;
    struct vpc vpc;
    struct subnet subnet;
    struct igw igw;
    struct route routes[3];
    struct rtb rtb;
    struct sg_rule rules[16];
    struct sg sg[2];
    struct str ids[2];
    struct eni eni[3];
    const struct vpc *vpcs[1];
    const struct subnet *subnets[1];
    const struct igw *igws[1];
    const struct rtb *rtbs[1];
    const struct sg *sgs[2];
    const struct eni *enis[3];
    struct plan_input in;
};

static struct eni make_eni(struct world *w, int i, const char *id, const char *ip,
                           const char *mac)
{
    return (struct eni){.id = str_c(id),
                        .account = STR("111122223333"),
                        .vpc_id = STR(VPC),
                        .subnet_id = STR(SUB),
                        .mac = str_c(mac),
                        .private_ip = str_c(ip),
                        .sg_ids = {&w->ids[i % 2], 1},
                        .public_ip = STR(""),
                        .instance_id = STR(""),
                        .is_source_dest_checked = true,
                        .want = STR("present"),
                        .node = STR("node1")};
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    w->a = arena_new(4u << 20);
    w->vpc = (struct vpc){.id = STR(VPC),
                          .account = STR("111122223333"),
                          .cidr = STR("172.31.0.0/16"),
                          .main_rtb_id = STR("rtb-1")};
    w->subnet = (struct subnet){
        .id = STR(SUB), .vpc_id = STR(VPC), .cidr = STR("172.31.16.0/20"), .rtb_id = STR("")};
    w->igw = (struct igw){.id = STR(IGW), .vpc_id = STR(VPC)};
    w->routes[0] = (struct route){.dest = STR("172.31.0.0/16"), .target = STR("local")};
    w->routes[1] = (struct route){.dest = STR("0.0.0.0/0"), .target = STR(IGW)};
    w->rtb = (struct rtb){.id = STR("rtb-1"), .vpc_id = STR(VPC), .routes = {w->routes, 2}};
    w->ids[0] = STR(SG_A);
    w->ids[1] = STR(SG_B);
    w->sg[0] = (struct sg){.id = STR(SG_A), .vpc_id = STR(VPC), .rules = {w->rules, 0}};
    w->sg[1] = (struct sg){.id = STR(SG_B), .vpc_id = STR(VPC)};
    w->eni[0] = make_eni(w, 0, "eni-0000000000000000a", "172.31.16.10", "0a:00:00:00:00:0a");
    w->eni[1] = make_eni(w, 1, "eni-0000000000000000b", "172.31.16.11", "0a:00:00:00:00:0b");
    w->eni[2] = make_eni(w, 0, "eni-0000000000000000c", "172.31.16.12", "0a:00:00:00:00:0c");
    w->eni[2].node = STR("node2");
    w->vpcs[0] = &w->vpc;
    w->subnets[0] = &w->subnet;
    w->igws[0] = &w->igw;
    w->rtbs[0] = &w->rtb;
    for (int i = 0; i < 3; i++) {
        w->enis[i] = &w->eni[i];
        w->sgs[i % 2] = &w->sg[i % 2];
    }
    w->in = (struct plan_input){.vpc = {w->vpcs, 1},
                                .subnet = {w->subnets, 1},
                                .igw = {w->igws, 1},
                                .rtb = {w->rtbs, 1},
                                .sg = {w->sgs, 2},
                                .eni = {w->enis, 3},
                                .node = "node1",
                                .host_prefix = "spxv123"};
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    arena_free(w->a);
    free(w);
    return 0;
}

static struct plan build(struct world *w)
{
    struct plan p;
    struct err err = ERR_INIT;
    if (plan_build(&w->in, w->a, &p, &err)) {
        fail_msg("%s", err.msg);
    }
    return p;
}

static struct str rules_of(struct world *w, const struct plan_vpc *v)
{
    AUTO_BUF b;
    char mark[RULESET_MARK_SIZE];
    buf_init(&b, RULESET_MAX);
    ruleset_vpc(v, &b, mark);
    assert_true(buf_ok(&b));
    assert_true(str_find_str(buf_str(&b), str_c(mark)) > 0);
    return arena_str_dup(w->a, buf_str(&b));
}

static void test_a_plan(void **state)
{
    struct world *w = *state;
    w->eni[0].public_ip = STR("198.51.100.10");
    struct plan p = build(w);
    assert_int_equal(p.n_vpcs, 1);
    const struct plan_vpc *v = &p.vpcs[0];
    assert_string_equal(v->link, "spxv1239abcdef0");
    assert_int_equal(v->n_enis, 2); /* the third is on another node */
    const struct plan_eni *e = &v->enis[0];
    assert_string_equal(e->tap, "spxt0000000000a");
    assert_int_equal(e->ip, IP(172, 31, 16, 10));
    assert_int_equal(e->gateway, IP(172, 31, 16, 1));
    assert_int_equal(e->public_ip, IP(198, 51, 100, 10));
    assert_int_equal(v->n_sgs, 2);
    assert_int_equal(v->sgs[0].n_members, 2); /* of all nodes */
    assert_int_equal(v->sgs[0].members[1], IP(172, 31, 16, 12));
    assert_true(v->has_igw);
    assert_int_equal(v->n_routes, 1);
    assert_int_equal(v->routes[0].n_dests, 1);
    assert_int_equal(v->routes[0].dests[0].len, 0);
}

static void test_two_clouds_of_one_host_have_names_of_their_own(void **state)
{
    char a[PLAN_PREFIX_SIZE], b[PLAN_PREFIX_SIZE], again[PLAN_PREFIX_SIZE], link[NL_NAME_SIZE];
    plan_host_prefix("/run/spinifex", a);
    plan_host_prefix("/home/me/spinifex/run", b);
    plan_host_prefix("/run/spinifex", again);
    assert_string_not_equal(a, b);
    assert_string_equal(a, again);
    plan_link_name(a, STR(VPC), link);
    assert_int_equal(strlen(link), 15);
    assert_true(str_has_prefixc(str_c(link), a) && str_has_prefixc(str_c(link), "spxv"));
}

static void test_what_makes_no_sense_is_left_out_alone(void **state)
{
    struct world *w = *state;
    static const struct {
        const char *name, *ip, *mac, *subnet, *public_ip;
    } cases[] = {
        {"no address", "", "0a:00:00:00:00:0a", SUB, ""},
        {"outside the subnet", "172.31.0.10", "0a:00:00:00:00:0a", SUB, ""},
        {"the gateway's", "172.31.16.1", "0a:00:00:00:00:0a", SUB, ""},
        {"a group MAC", "172.31.16.10", "01:00:5e:00:00:01", SUB, ""},
        {"no MAC", "172.31.16.10", "0a:00:00:00:00", SUB, ""},
        {"quotes", "172.31.16.10\"; }", "0a:00:00:00:00:0a", SUB, ""},
        {"no subnet", "172.31.16.10", "0a:00:00:00:00:0a", "subnet-9", ""},
        {"a bad public address", "172.31.16.10", "0a:00:00:00:00:0a", SUB, "1.2.3"},
    };
    struct eni good = w->eni[0];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        w->eni[0] = good;
        w->eni[0].private_ip = str_c(cases[i].ip);
        w->eni[0].mac = str_c(cases[i].mac);
        w->eni[0].subnet_id = str_c(cases[i].subnet);
        w->eni[0].public_ip = str_c(cases[i].public_ip);
        struct plan p = build(w);
        if (p.n_bad != 1 || p.bad[0].reason.n == 0 || p.n_vpcs != 1 || p.vpcs[0].n_enis != 1) {
            fail_msg("%s", cases[i].name);
        }
    }
    w->eni[0] = good;
    w->eni[0].account = STR("999999999999"); /* in a VPC of another account */
    assert_int_equal(build(w).n_bad, 1);
    w->eni[0] = good;
    w->eni[0].id = STR("eni-\"x");
    assert_int_equal(build(w).n_bad, 1);
    w->eni[0] = good;
    w->eni[0].want = STR("deleted");
    struct plan p = build(w);
    assert_int_equal(p.n_gone, 1);
    assert_int_equal(p.vpcs[0].n_enis, 1);
    w->eni[1].want = STR("deleted");
    assert_int_equal(build(w).n_vpcs, 0); /* no interface, no network */
}

static struct sg_rule rule(const char *proto, int64_t from, int64_t to, const char *cidr,
                           const char *group)
{
    return (struct sg_rule){.protocol = str_c(proto),
                            .port_from = from,
                            .port_to = to,
                            .cidr = str_c(cidr),
                            .group_id = str_c(group),
                            .cidr6 = STR(""),
                            .prefix_list_id = STR("")};
}

static void test_rules(void **state)
{
    struct world *w = *state;
    static const struct {
        const char *proto;
        int64_t from, to;
        const char *cidr, *group, *want; /* want NULL: no rule comes of it */
    } cases[] = {
        {"tcp", 80, 80, "0.0.0.0/0", "", "\n  tcp dport 80 accept\n"},
        {"tcp", 80, 90, "10.0.0.0/8", "", "\n  ip saddr 10.0.0.0/8 tcp dport 80-90 accept\n"},
        {"6", 22, 22, "10.0.0.1/32", "", "\n  ip saddr 10.0.0.1/32 tcp dport 22 accept\n"},
        {"udp", 0, 65535, "0.0.0.0/0", "", "\n  meta l4proto udp accept\n"},
        {"-1", -1, -1, "", SG_B, "\n  ip saddr @m_0000000000000000b accept\n"},
        {"icmp", -1, -1, "0.0.0.0/0", "", "\n  meta l4proto icmp accept\n"},
        {"icmp", 8, -1, "0.0.0.0/0", "", "\n  icmp type 8 accept\n"},
        {"icmp", 3, 4, "0.0.0.0/0", "", "\n  icmp type 3 icmp code 4 accept\n"},
        {"50", -1, -1, "0.0.0.0/0", "", "\n  meta l4proto 50 accept\n"},
        {"tcp", 90, 80, "0.0.0.0/0", "", NULL},
        {"tcp", 80, 70000, "0.0.0.0/0", "", NULL},
        {"icmp", 300, 0, "0.0.0.0/0", "", NULL},
        {"icmpv6", -1, -1, "0.0.0.0/0", "", NULL},
        {"58", -1, -1, "0.0.0.0/0", "", NULL},
        {"256", -1, -1, "0.0.0.0/0", "", NULL},
        {"tcp; }", 80, 80, "0.0.0.0/0", "", NULL},
        {"tcp", 80, 80, "10.0.0.1/8", "", NULL},
        {"tcp", 80, 80, "10.0.0.0/8 accept; #", "", NULL},
        {"tcp", 80, 80, "", "", NULL},
        {"tcp", 80, 80, "", "sg-x\"; drop", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        w->rules[0] =
            rule(cases[i].proto, cases[i].from, cases[i].to, cases[i].cidr, cases[i].group);
        w->sg[0].rules.n = 1;
        struct plan p = build(w);
        struct str text = rules_of(w, &p.vpcs[0]);
        struct str chain =
            str_skip(text, (size_t)str_find_str(text, STR(" chain i_0000000000000000a {")));
        chain = str_n(chain.p, (size_t)str_find(chain, '}', 0));
        bool is_right = cases[i].want ? str_find_str(chain, str_c(cases[i].want)) > 0
                                      : str_find_str(chain, STR("accept")) < 0;
        if (!is_right) {
            fail_msg("%s %d-%d %s: %.*s", cases[i].proto, (int)cases[i].from, (int)cases[i].to,
                     cases[i].cidr, STR_ARG(chain));
        }
    }
}

static void test_the_text_follows_what_matters(void **state)
{
    struct world *w = *state;
    struct plan p = build(w);
    struct str first = rules_of(w, &p.vpcs[0]);
    p = build(w);
    assert_true(
        str_eq(first, rules_of(w, &p.vpcs[0]))); /* the same input, the same text: no reload */
    w->eni[2].want = STR("deleted");             /* on another node, but a member of a group */
    p = build(w);
    assert_false(str_eq(first, rules_of(w, &p.vpcs[0])));
    /* without a gateway nothing goes out, whatever the addresses say */
    w->eni[0].public_ip = STR("198.51.100.10");
    w->in.igw.n = 0;
    p = build(w);
    assert_true(str_find_str(rules_of(w, &p.vpcs[0]), STR("198.51.100.10")) < 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_a_plan),
        T(test_two_clouds_of_one_host_have_names_of_their_own),
        T(test_what_makes_no_sense_is_left_out_alone),
        T(test_rules),
        T(test_the_text_follows_what_matters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
