#include "vpcd/resp_sockets.h"

#include "base/file.h"
#include "model/network.h"
#include "os/netns.h"
#include "vpcd/ruleset.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static int open_socket(int type, uint32_t ip, uint16_t port, int *ret_fd, struct err *err)
{
    struct sockaddr_in sa = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(ip)};
    AUTO_FD fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1;
    bool is_tcp = type == SOCK_STREAM;
    if (fd < 0 || (is_tcp && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on))) ||
        (!is_tcp && setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on))) ||
        setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof(on)) ||
        bind(fd, (struct sockaddr *)&sa, sizeof(sa)) || (is_tcp && listen(fd, 128))) {
        return fail(err, -errno, "SocketFailed", "port %u of the VPC: %m", port);
    }
    *ret_fd = steal_fd(&fd);
    return 0;
}

struct open_all {
    uint32_t vpc_dns;
    int *fds;
};

static int open_all(void *ctx, struct err *err)
{
    const struct open_all *o = ctx;
    const struct {
        int type;
        uint32_t ip;
        uint16_t port;
    } want[RESP_FD_N] = {
        [RESP_FD_DHCP] = {SOCK_DGRAM, INADDR_ANY, 67},
        [RESP_FD_DNS_UDP_A] = {SOCK_DGRAM, SERVICE_DNS, 53},
        [RESP_FD_DNS_UDP_B] = {SOCK_DGRAM, o->vpc_dns, 53},
        [RESP_FD_DNS_TCP_A] = {SOCK_STREAM, SERVICE_DNS, 53},
        [RESP_FD_DNS_TCP_B] = {SOCK_STREAM, o->vpc_dns, 53},
        [RESP_FD_NTP] = {SOCK_DGRAM, SERVICE_NTP, 123},
        [RESP_FD_HTTP] = {SOCK_STREAM, SERVICE_IMDS, 80},
    };
    for (size_t i = 0; i < RESP_FD_N; i++) {
        int r = open_socket(want[i].type, want[i].ip, want[i].port, &o->fds[i], err);
        while (r && i > 0) {
            close(o->fds[--i]);
        }
        if (r) {
            return r;
        }
    }
    return 0;
}

int resp_sockets_open(int ns_fd, uint32_t vpc_dns, int *ret_fds, struct err *err)
{
    struct open_all o = {vpc_dns, ret_fds};
    return netns_run(ns_fd, open_all, &o, err);
}

/* ---- upstream name servers ---- */

static size_t configured(const struct config *cfg, uint32_t *out)
{
    size_t n = 0;
    for (size_t i = 0; i < cfg->n_pools; i++) {
        for (size_t k = 0; k < cfg->pools[i].n_dns_servers && n < RESP_MAX_UPSTREAMS; k++) {
            n += !ip4_parse(str_c(cfg->pools[i].dns_servers[k]), &out[n]);
        }
    }
    return n;
}

static size_t of_the_host(uint32_t *out)
{
    AUTO_FREE char *text = NULL;
    size_t size = 0, n = 0;
    if (file_read("/etc/resolv.conf", 65536, &text, &size, NULL)) {
        return 0;
    }
    struct str rest = str_n(text, size), line;
    while (str_next(&rest, '\n', &line) && n < RESP_MAX_UPSTREAMS) {
        line = str_trim(line);
        if (str_has_prefixc(line, "nameserver")) {
            n += !ip4_parse(str_trim(str_skip(line, strlen("nameserver"))), &out[n]);
        }
    }
    return n;
}

/* -1: there is no way to it now. A host without a network has no names to ask for. */
static int connected_to(uint32_t server)
{
    struct sockaddr_in sa = {
        .sin_family = AF_INET, .sin_port = htons(53), .sin_addr.s_addr = htonl(server)};
    AUTO_FD fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) ? -1 : steal_fd(&fd);
}

static size_t name_servers(const struct config *cfg, uint32_t servers[RESP_MAX_UPSTREAMS])
{
    size_t n = configured(cfg, servers);
    return n ? n : of_the_host(servers);
}

void resp_upstreams_text(const struct config *cfg, char out[RESP_UPSTREAMS_TEXT])
{
    uint32_t servers[RESP_MAX_UPSTREAMS] = {0};
    size_t n = name_servers(cfg, servers), len = 0;
    out[0] = 0;
    for (size_t i = 0; i < n; i++) {
        AUTO_FD fd = connected_to(servers[i]);
        struct sockaddr_in own = {0};
        socklen_t own_size = sizeof(own);
        if (fd >= 0 && !getsockname(fd, (struct sockaddr *)&own, &own_size)) {
            len += (size_t)snprintf(out + len, RESP_UPSTREAMS_TEXT - len, "%08x/%08x ",
                                    servers[i], ntohl(own.sin_addr.s_addr));
        }
    }
}

int resp_upstreams_open(const struct config *cfg, int *ret_fds, size_t *ret_n, struct err *err)
{
    uint32_t servers[RESP_MAX_UPSTREAMS] = {0};
    size_t n_servers = name_servers(cfg, servers), n = 0;
    for (size_t i = 0; i < n_servers; i++) {
        size_t start = n;
        for (size_t k = 0; k < RESP_UPSTREAM_SOCKETS; k++) {
            int fd = connected_to(servers[i]);
            if (fd >= 0) {
                ret_fds[n++] = fd;
            }
        }
        while (n > start && n - start < RESP_UPSTREAM_SOCKETS) {
            close(ret_fds[--n]);
        }
    }
    *ret_n = n;
    return 0;
}
