#include "spx/host.h"
#include "model/network.h"
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define MAX_NAMES   200u
#define MAX_SERVERS 3u /* as many as resolv.conf may have (MAXNS) */

static void add_name(struct str_list *l, struct str name)
{
    for (size_t i = 0; i < l->n; i++) {
        if (str_ieq(l->v[i], name)) {
            return;
        }
    }
    if (name.n > 0 && l->n < MAX_NAMES) {
        l->v[l->n++] = name;
    }
}

/* The text of an interface's address, STR_NONE for those nobody connects to from elsewhere. */
static struct str address_text(struct arena *a, const struct sockaddr *sa)
{
    char text[INET6_ADDRSTRLEN];
    if (sa && sa->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, sa, sizeof(in));
        inet_ntop(AF_INET, &in.sin_addr, text, sizeof(text));
    } else if (sa && sa->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, sa, sizeof(in6));
        if (IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr)) {
            return STR_NONE; /* nothing without a scope, and scopes do not go into certificates
                              */
        }
        inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof(text));
    } else {
        return STR_NONE;
    }
    return arena_str_dup(a, str_c(text));
}

int host_names(struct arena *a, const char *first, const char *node, struct str_list *ret,
               struct err *err)
{
    struct str_list l = {.v = arena_xalloc(a, MAX_NAMES * sizeof(struct str))};
    char host[256] = "";
    add_name(&l, arena_str_dup(a, str_c(first)));
    if (gethostname(host, sizeof(host) - 1) == 0) {
        struct str full = arena_str_dup(a, str_c(host));
        add_name(&l, full);
        add_name(&l, arena_str_dup(a, str_cut(full, '.')));
    }
    add_name(&l, arena_str_dup(a, str_c(node)));
    add_name(&l, STR("localhost"));
    add_name(&l, STR("127.0.0.1"));
    add_name(&l, STR("::1"));
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) < 0) {
        return fail(err, -errno, "NoAddresses", "reading this host's addresses: %m");
    }
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        struct str s = address_text(a, i->ifa_addr);
        /* Links of ours come and go with VPCs, and carry no address that clients use. */
        if (str_is_set(s) && strncmp(i->ifa_name, "spx", 3) != 0) {
            add_name(&l, s);
        }
    }
    freeifaddrs(all);
    *ret = l;
    return 0;
}

struct str host_main_ip(struct arena *a)
{
    /* Connecting a datagram socket sends nothing; the kernel only looks up the route. */
    AUTO_FD fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
    struct sockaddr_in self = {0};
    socklen_t n = sizeof(self);
    char text[INET_ADDRSTRLEN];
    inet_pton(AF_INET, "192.0.2.1", &to.sin_addr);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0 &&
        getsockname(fd, (struct sockaddr *)&self, &n) == 0 &&
        inet_ntop(AF_INET, &self.sin_addr, text, sizeof(text))) {
        return arena_str_dup(a, str_c(text));
    }
    return STR("127.0.0.1");
}

struct str_list host_name_servers(struct arena *a, const char *resolv_conf_text)
{
    struct str_list l = {.v = arena_xalloc(a, MAX_SERVERS * sizeof(struct str))};
    struct str rest = str_c(resolv_conf_text), line = STR_NONE;
    while (str_next(&rest, '\n', &line)) {
        uint32_t ip = 0;
        line = str_trim(line);
        if (!str_has_prefixc(line, "nameserver") || l.n == MAX_SERVERS) {
            continue;
        }
        struct str addr = str_trim(str_skip(line, strlen("nameserver")));
        if (ip4_parse(addr, &ip) == 0 && ip >> 24 != 127 && ip != 0) {
            l.v[l.n++] = arena_str_dup(a, addr);
        }
    }
    return l;
}

bool host_has_address_in(uint32_t net, uint32_t mask)
{
    struct ifaddrs *all = NULL;
    bool is_in = false;
    if (getifaddrs(&all) < 0) {
        return false;
    }
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        bool is_ours = strncmp(i->ifa_name, "spx", 3) == 0; /* vpcd's links carry the pool */
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && !is_ours) {
            struct sockaddr_in in;
            memcpy(&in, i->ifa_addr, sizeof(in));
            is_in = is_in || (ntohl(in.sin_addr.s_addr) & mask) == net;
        }
    }
    freeifaddrs(all);
    return is_in;
}
