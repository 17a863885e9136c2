/* netlink_int.h — one request, one answer: shared by the files of netlink.h.
 * Not here: anything that other rooms may see.
 * Threads:  as netlink.h.
 * Memory:   requests are built in the buffer inside struct nl.
 * Errors:   as netlink.h. */
#pragma once
#include "os/netlink.h"

#include <libmnl/libmnl.h>

#define NL_BUF_SIZE 32768u /* what the kernel fills per read of a dump */

struct nl {
    struct mnl_socket *sock;
    uint32_t seq;
    char req[4096];
    char rsp[NL_BUF_SIZE];
};

/* Starts a request in nl->req: the header and 'extra_size' zeroed bytes after it. */
struct nlmsghdr *nl_begin(struct nl *nl, uint16_t type, uint16_t flags, size_t extra_size,
                          void **ret_extra);
/* Sends nl->req; every message of the answer goes to 'on_msg' (may be NULL). 'what' is for
 * messages. */
int nl_talk(struct nl *nl, struct nlmsghdr *req, const char *what, mnl_cb_t on_msg, void *ctx,
            struct err *err);
