/* The network drivers against the real kernel, in namespaces of the test's own. Needs root. */
#include "os/netlink.h"
#include "os/netns.h"
#include "os/nft.h"
#include "os/sysctl.h"
#include "os/tun.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cmocka.h>

#define IP(a, b, c, d) \
    ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (uint32_t)(d))

static char ns_path[128];

static void ok_(int r, const struct err *e, int line)
{
    if (r < 0) {
        fail_msg("line %d: %s: %s", line, e->name, e->msg);
    }
}
static struct err err; /* of the last OK() */
#define OK(call)                 \
    do {                         \
        err_clear(&err);         \
        int r_ = (call);         \
        ok_(r_, &err, __LINE__); \
    } while (0)

static int setup(void **state)
{
    /* A namespace of its own, so that nothing of the machine is touched. */
    if (unshare(CLONE_NEWNET | CLONE_NEWNS)) {
        return -1;
    }
    snprintf(ns_path, sizeof(ns_path), "/tmp/spx-os-net-%d", (int)getpid());
    return mkdir(ns_path, 0700) || !strncat(ns_path, "/a", 3);
}

static int teardown(void **state)
{
    int r = netns_remove(ns_path, NULL);
    ns_path[strlen(ns_path) - 2] = 0;
    return rmdir(ns_path) | r;
}

static int count_links(void *ctx, struct err *e)
{
    AUTO(nl_closep) struct nl *nl = NULL;
    int r = nl_open(&nl, e);
    if (r) {
        return r;
    }
    AUTO_FREE struct nl_link *v = NULL;
    size_t n = 0;
    r = nl_link_list(nl, &v, &n, e);
    return r ? r : (int)n;
}

static void test_netns(void **state)
{
    err_clear(&err);
    int fd = -1;
    assert_int_equal(netns_open(ns_path, &fd, &err), -ENOENT);
    OK(netns_create(ns_path, &err));
    assert_int_equal(netns_create(ns_path, NULL), -EEXIST);
    OK(netns_open(ns_path, &fd, &err));
    AUTO_FD self = -1;
    OK(netns_self(&self, &err));
    assert_false(netns_is_same(fd, self));
    assert_int_equal(netns_run(fd, count_links, NULL, NULL), 1); /* lo */
    AUTO_FD after = -1;
    OK(netns_self(&after, &err));
    assert_true(netns_is_same(after, self));
    close(fd);
    /* An ordinary file in its place is no namespace, and is replaced. */
    OK(netns_remove(ns_path, &err));
    OK(netns_remove(ns_path, &err));
    fclose(fopen(ns_path, "w"));
    assert_int_equal(netns_open(ns_path, &fd, NULL), -ENOENT);
    OK(netns_create(ns_path, &err));
}

static int tap_in_ns(void *ctx, struct err *e)
{
    int *fds = ctx;
    int r = tun_create("spxttest", e);
    r = r ? r : tun_create("spxttest", e); /* again is fine */
    return r ? r : tun_open_queues("spxttest", 4, fds, e);
}

static int check_tap(void *ctx, struct err *e)
{
    AUTO(nl_closep) struct nl *nl = NULL;
    int r = nl_open(&nl, e);
    if (r) {
        return r;
    }
    struct nl_link l = {0};
    r = nl_link_get(nl, "spxttest", &l, e);
    static const uint8_t mac[6] = {0x0a, 0xff, 0, 0, 0, 1};
    r = r ? r : nl_link_set(nl, l.ifindex, true, 9001, mac, e);
    r = r ? r : nl_link_get(nl, "spxttest", &l, e);
    if (r) {
        return r;
    }
    assert_int_equal(l.mtu, 9001);
    assert_memory_equal(l.mac, mac, 6);
    assert_string_equal(l.kind, "tun");
    assert_true(l.is_up);
    assert_int_equal(l.has_carrier, *(const bool *)ctx);
    return 0;
}

static void test_tap_fds_are_opened_in_the_namespace(void **state)
{
    AUTO_FD ns = -1;
    OK(netns_open(ns_path, &ns, &err));
    int fds[TUN_MAX_QUEUES];
    OK(netns_run(ns, tap_in_ns, fds, &err));
    bool has_carrier = true;
    OK(netns_run(ns, check_tap, &has_carrier, &err));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(close(fds[i]), 0);
    }
    has_carrier = false; /* it stays, with nobody at the other end */
    OK(netns_run(ns, check_tap, &has_carrier, &err));
    err_clear(&err);
    assert_int_equal(tun_open_queues("spxttest", 17, fds, &err), -EINVAL);
    assert_int_equal(count_links(NULL, NULL), 1); /* nothing came into our own namespace */
}

static void test_links_addresses_routes_neighbours(void **state)
{
    AUTO_FD ns = -1;
    OK(netns_open(ns_path, &ns, &err));
    AUTO(nl_closep) struct nl *nl = NULL;
    OK(nl_open(&nl, &err));
    err_clear(&err);
    struct nl_veth v = {.name = "spxvtest",
                        .peer = "ext",
                        .peer_ns_fd = ns,
                        .mtu = 9001,
                        .mac = {0x0a, 0xfe, 0, 0, 0, 1},
                        .peer_mac = {0x0a, 0xfe, 0, 0, 0, 2}};
    OK(nl_veth_add(nl, &v, &err));
    assert_int_equal(nl_veth_add(nl, &v, &err), -EEXIST);
    struct nl_link l = {0};
    OK(nl_link_get(nl, "spxvtest", &l, &err));
    assert_string_equal(l.kind, "veth");
    assert_int_equal(l.mtu, 9001);
    OK(nl_link_set(nl, l.ifindex, true, 0, NULL, &err));

    struct nl_addr a = {.ifindex = l.ifindex, .ip = IP(198, 51, 100, 1), .prefix_len = 32};
    OK(nl_addr_replace(nl, &a, &err));
    OK(nl_addr_replace(nl, &a, &err));
    AUTO_FREE struct nl_addr *addrs = NULL;
    size_t n = 0;
    OK(nl_addr_list(nl, &addrs, &n, &err));
    assert_int_equal(n, 1);
    assert_int_equal(addrs[0].ip, a.ip);

    struct nl_route r = {.dst = IP(198, 51, 100, 10),
                         .prefix_len = 32,
                         .gw = IP(169, 254, 1, 2),
                         .ifindex = l.ifindex};
    OK(nl_route_replace(nl, &r, &err));
    OK(nl_route_replace(nl, &r, &err));
    AUTO_FREE struct nl_route *routes = NULL;
    OK(nl_route_list(nl, &routes, &n, &err));
    assert_int_equal(n, 1);
    assert_int_equal(routes[0].dst, r.dst);
    assert_int_equal(routes[0].gw, r.gw);
    assert_int_equal(routes[0].ifindex, l.ifindex);

    for (int is_proxy = 0; is_proxy < 2; is_proxy++) {
        struct nl_neigh ne = {.ifindex = l.ifindex,
                              .ip = r.gw,
                              .mac = {0x0a, 0xfe, 0, 0, 0, 2},
                              .is_proxy = is_proxy};
        OK(nl_neigh_replace(nl, &ne, &err));
        AUTO_FREE struct nl_neigh *neighs = NULL;
        OK(nl_neigh_list(nl, is_proxy, &neighs, &n, &err));
        assert_int_equal(n, 1);
        assert_int_equal(neighs[0].ip, ne.ip);
        OK(nl_neigh_del(nl, &ne, &err));
        OK(nl_neigh_del(nl, &ne, &err));
    }
    /* A link that is right already is left alone: its neighbours stay. */
    static const uint8_t same[6] = {0x0a, 0xfe, 0, 0, 0, 1},
                         other[6] = {0x0a, 0xfe, 0, 0, 0, 9};
    struct nl_neigh kept = {.ifindex = l.ifindex, .ip = r.gw, .mac = {0x0a, 0xfe, 0, 0, 0, 2}};
    OK(nl_neigh_replace(nl, &kept, &err));
    OK(nl_link_get(nl, "spxvtest", &l, &err));
    OK(nl_link_ensure(nl, &l, 9001, same, &err));
    AUTO_FREE struct nl_neigh *after = NULL;
    OK(nl_neigh_list(nl, false, &after, &n, &err));
    assert_int_equal(n, 1);
    OK(nl_link_ensure(nl, &l, 1500, other, &err));
    OK(nl_link_get(nl, "spxvtest", &l, &err));
    assert_int_equal(l.mtu, 1500);
    assert_memory_equal(l.mac, other, 6);
    assert_true(l.is_up);
    OK(nl_neigh_del(nl, &kept, &err));
    OK(nl_route_del(nl, &r, &err));
    OK(nl_route_del(nl, &r, &err));
    OK(nl_addr_del(nl, &a, &err));
    OK(nl_addr_del(nl, &a, &err));
    OK(nl_link_del(nl, "spxvtest", &err));
    OK(nl_link_del(nl, "spxvtest", &err));
    assert_int_equal(nl_link_get(nl, "spxvtest", &l, &err), -ENODEV);
}

static int nft_in_ns(void *ctx, struct err *e)
{
    AUTO(nft_closep) struct nft *n = NULL;
    int r = nft_open(&n, e);
    r = r ? r : nft_apply(n, "table inet spx_a {\n chain c {\n }\n}\n", e);
    if (r) {
        return r;
    }
    /* One bad line and nothing of the document is applied. */
    struct err bad = ERR_INIT;
    assert_int_equal(
        nft_apply(n, "add table inet spx_b\nadd rule inet spx_b nochain accept\n", &bad),
        -EINVAL);
    assert_string_equal(bad.name, "NftFailed");
    assert_true(strlen(bad.msg) > 20);
    struct str text;
    r = nft_list(n, "list tables", &text, e);
    if (!r) {
        assert_true(str_eqc(str_trim(text), "table inet spx_a"));
    }
    return r;
}

static void test_nft_is_atomic_and_in_the_namespace(void **state)
{
    AUTO_FD ns = -1;
    OK(netns_open(ns_path, &ns, &err));
    OK(netns_run(ns, nft_in_ns, NULL, &err));
    AUTO(nft_closep) struct nft *here = NULL;
    OK(nft_open(&here, &err));
    struct str text;
    OK(nft_list(here, "list tables", &text, &err));
    assert_int_equal(text.n, 0);
}

static int set_forward(void *ctx, struct err *e)
{
    int r = sysctl_set("net/ipv4/ip_forward", 1, e);
    r = r ? r : sysctl_set_link("conf", "lo", "proxy_arp", 1, e);
    uint64_t v = 0;
    r = r ? r : sysctl_get("net/ipv4/conf/lo/proxy_arp", &v, e);
    return r ? r : (int)v;
}

static void test_sysctl_is_per_namespace(void **state)
{
    AUTO_FD ns = -1;
    OK(netns_open(ns_path, &ns, &err));
    assert_int_equal(netns_run(ns, set_forward, NULL, NULL), 1);
    uint64_t v = 7;
    OK(sysctl_get("net/ipv4/ip_forward", &v, &err));
    assert_int_equal(v, 0);
    err_clear(&err);
    assert_int_equal(sysctl_set("net/../../etc/passwd", 1, &err), -EINVAL);
    assert_int_equal(sysctl_set("net/ipv4/no_such", 1, NULL), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_netns),
        cmocka_unit_test(test_tap_fds_are_opened_in_the_namespace),
        cmocka_unit_test(test_links_addresses_routes_neighbours),
        cmocka_unit_test(test_nft_is_atomic_and_in_the_namespace),
        cmocka_unit_test(test_sysctl_is_per_namespace),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
