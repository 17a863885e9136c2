/* ruleset.h — the nftables documents of a VPC's namespace and of the host, as text. Pure.
 * Not here: applying them (os/nft).
 * Both replace their tables as a whole in one transaction. Base chains have policy accept and
 * end in "drop": while a transaction is being prepared the new chains are already hooked but
 * empty, and the old ones still rule, so no packet is lost or let through. Only numbers, link
 * names of ours and well-formed ids are printed, never text of a user.
 * Threads:  no state.
 * Memory:   the text is appended to a buffer of the caller.
 * Errors:   buf_ok() of the buffer. */
#pragma once
#include "base/buf.h"
#include "model/config.h"
#include "vpcd/plan.h"

#define RULESET_MAX  (64u << 20)

#define SERVICE_IMDS 0xa9fea9feu /* 169.254.169.254 */
#define SERVICE_DNS  0xa9fea9fdu /* 169.254.169.253 */
#define SERVICE_NTP  0xa9fea97bu /* 169.254.169.123 */
#define LINK_EXT     "spxext"    /* the VPC's end of its pair with the host */
#define LINK_HOST_IP \
    0xa9feff01u /* 169.254.255.1: next hop towards the host; nobody holds it, the neighbour \
                   entry is permanent */
#define LINK_VPC_IP       0xa9feff02u /* 169.254.255.2: towards the VPC */

/* Name of an empty chain that the document makes: when it is there, exactly this text is in
 * force. */
#define RULESET_MARK_SIZE 35

/* Table inet spx and table netdev spx_guard of a VPC. */
void ruleset_vpc(const struct plan_vpc *v, struct buf *out, char mark[RULESET_MARK_SIZE]);
/* The host's table, named plan_host_prefix(). */
void ruleset_host(const struct config *cfg, struct buf *out, char mark[RULESET_MARK_SIZE]);
