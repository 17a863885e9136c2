/* Helper of vpcd_component_test.py: plays awsgw (writes records) and QEMU (holds the taps of an
 * interface and carries its frames to a tap inside a "guest", which is a namespace with the
 * kernel's own network stack). */
#include "base/buf.h"
#include "base/file.h"
#include "base/time.h"
#include "kv/kv.h"
#include "kv/kv_admin.h"
#include "net/rpc.h"
#include "os/netlink.h"
#include "os/netns.h"
#include "os/tun.h"
#include "vpcd/plan.h"

#include "codec/json.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>

#define FRAME_MAX 70000

static int die(const struct err *err)
{
    fprintf(stderr, "%s: %s\n", err->name ? err->name : "?", err->msg);
    return 1;
}

/* Lines "KEY VALUE" (put) or "KEY" (delete), in one transaction. */
static int put(const char *sock)
{
    struct err err = ERR_INIT;
    AUTO(kv_closep) struct kv *kv = NULL;
    static char text[1 << 20];
    size_t n = fread(text, 1, sizeof(text), stdin), n_ops = 0;
    struct kv_op ops[KV_MAX_OPS];
    struct str rest = str_n(text, n), line;
    while (str_next(&rest, '\n', &line) && n_ops < KV_MAX_OPS) {
        if (line.n == 0) {
            continue;
        }
        struct str key = str_cut(line, ' ');
        ops[n_ops++] = key.n == line.n ? (struct kv_op){.type = KV_DELETE, .key = key}
                                       : (struct kv_op){.type = KV_PUT,
                                                        .key = key,
                                                        .value = str_skip(line, key.n + 1)};
    }
    uint64_t rev = 0;
    int r = kv_open_remote_as(sock, "awsgw", &kv, &err);
    r = r ? r : kv_txn(kv, NULL, 0, ops, n_ops, &rev, &err);
    return r ? die(&err) : 0;
}

static int get(const char *sock, const char *key)
{
    struct err err = ERR_INIT;
    AUTO(kv_closep) struct kv *kv = NULL;
    AUTO(arena_freep) struct arena *a = arena_new(4 << 20);
    struct kv_item it;
    int r = kv_open_remote_as(sock, "awsgw", &kv, &err);
    r = r ? r : kv_get(kv, a, str_c(key), &it, &err);
    if (r) {
        return die(&err);
    }
    printf("%.*s\n", STR_ARG(it.value));
    return 0;
}

static int call(const char *sock, const char *method, const char *payload)
{
    struct err err = ERR_INIT;
    struct rpc_client *c = rpc_client_new(sock, NULL, NULL);
    struct rpc_reply reply;
    int r = rpc_call(c, str_c(method), str_c(payload), NULL, 0, 20 * NS_PER_S, &reply, &err);
    if (!r) {
        printf("%.*s %zu\n", (int)reply.n, reply.payload, reply.n_fds);
        rpc_reply_done(&reply);
    }
    rpc_client_free(c);
    return r ? die(&err) : 0;
}

struct guest {
    const char *name;
    struct str mac;
    uint32_t mtu;
    int fd;
};

static int make_guest_link(void *ctx, struct err *err)
{
    struct guest *g = ctx;
    uint8_t mac[6];
    AUTO(nl_closep) struct nl *nl = NULL;
    struct nl_link l = {0};
    int r = tun_open_queues(g->name, 1, &g->fd, err);
    r = r ? r : nl_open(&nl, err);
    r = r ? r : nl_link_get(nl, g->name, &l, err);
    r = !r && plan_parse_mac(g->mac, mac)
            ? fail(err, -EINVAL, "BadMac", "%.*s", STR_ARG(g->mac))
            : r;
    return r ? r : nl_link_set(nl, l.ifindex, true, g->mtu, mac, err);
}

/* Both sides have the same offload header in front: frames go through as they are. */
static void carry(int from, int to)
{
    static char frame[FRAME_MAX];
    for (int i = 0; i < 64; i++) {
        ssize_t n = read(from, frame, sizeof(frame));
        if (n <= 0) {
            return;
        }
        (void)!write(to, frame, (size_t)n);
    }
}

static int pump(const char *sock, const char *payload, const char *ns_path, const char *name)
{
    struct err err = ERR_INIT;
    struct rpc_client *c = rpc_client_new(sock, NULL, NULL);
    struct rpc_reply reply;
    int r = rpc_call(c, STR("eni.open"), str_c(payload), NULL, 0, 20 * NS_PER_S, &reply, &err);
    AUTO(json_freep) struct json *j = NULL;
    r = r ? r : json_parse(str_n(reply.payload, reply.n), &j, &err);
    if (r) {
        return die(&err);
    }
    rpc_client_free(c);
    struct guest g = {.name = name,
                      .mac = json_get_str(j, "mac"),
                      .mtu = (uint32_t)json_get_u64(j, "mtu", 0)};
    int ns = -1;
    r = netns_open(ns_path, &ns, &err);
    r = r ? r : netns_run(ns, make_guest_link, &g, &err);
    if (r) {
        return die(&err);
    }
    printf("%.*s %zu\n", (int)reply.n, reply.payload, reply.n_fds);
    fflush(stdout);
    struct pollfd pf[TUN_MAX_QUEUES + 1] = {{.fd = g.fd, .events = POLLIN}};
    size_t n = MIN(json_get_u64(j, "n_queues", 1), (uint64_t)TUN_MAX_QUEUES);
    for (size_t i = 0; i < n; i++) {
        pf[1 + i] = (struct pollfd){.fd = reply.fds[i], .events = POLLIN};
    }
    while (poll(pf, n + 1, -1) > 0) {
        if (pf[0].revents) {
            carry(g.fd, reply.fds[0]);
        }
        for (size_t i = 0; i < n; i++) {
            if (pf[1 + i].revents & POLLIN) {
                carry(pf[1 + i].fd, g.fd);
            }
            if (pf[1 + i].revents & (POLLERR | POLLHUP)) {
                return 2; /* the tap is gone */
            }
        }
    }
    return 1;
}

int main(int argc, char **argv)
{
    if (argc == 3 && str_eqc(str_c(argv[1]), "put")) {
        return put(argv[2]);
    }
    if (argc == 4 && str_eqc(str_c(argv[1]), "get")) {
        return get(argv[2], argv[3]);
    }
    if (argc == 5 && str_eqc(str_c(argv[1]), "call")) {
        return call(argv[2], argv[3], argv[4]);
    }
    if (argc == 6 && str_eqc(str_c(argv[1]), "pump")) {
        return pump(argv[2], argv[3], argv[4], argv[5]);
    }
    fprintf(stderr, "usage: vpcd_lab put SOCK | get SOCK KEY | call SOCK METHOD JSON | pump "
                    "SOCK JSON NETNS LINK\n");
    return 2;
}
