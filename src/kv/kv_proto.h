/* kv_proto.h — the store's messages as bytes: what kv_remote.c and spx-state say to each other.
 * Not here: frames (net/rpc.h). Byte by byte: docs/formats/kv-rpc.md.
 * Threads:  no state.
 * Memory:   decoded strings are borrowed from the bytes; arrays are made in the arena given.
 * Errors:   decoders answer -EBADMSG "BadMessage" for anything but one whole message; encoders
 *           append to a buf (check buf_ok()). */
#pragma once
#include "base/buf.h"
#include "kv/kv.h"

#define KVP_VERSION     1
#define KVP_MAX_SERVICE 32u
#define KVP_MAX_WATCHES 256u /* of one connection */

struct kvp_hello {
    uint8_t version;
    struct str service;
};
struct kvp_hello_reply {
    uint64_t session, rev;
};
struct kvp_list {
    struct str prefix, after; /* after STR_NONE: from the start */
    uint32_t limit;
};
struct kvp_txn {
    struct kv_cmp *cmp;
    size_t n_cmp;
    struct kv_op *op;
    size_t n_op;
};
struct kvp_watch {
    uint64_t session;
    uint32_t id;
    uint64_t from_rev;
    struct str prefix;
};
struct kvp_unwatch {
    uint64_t session;
    uint32_t id;
};

void kvp_put_hello(struct buf *b, const struct kvp_hello *m);
void kvp_put_hello_reply(struct buf *b, const struct kvp_hello_reply *m);
void kvp_put_key(struct buf *b, struct str key);
void kvp_put_item(struct buf *b, const struct kv_item *item);
void kvp_put_list(struct buf *b, const struct kvp_list *m);
void kvp_put_list_reply(struct buf *b, const struct kv_list *list);
void kvp_put_txn(struct buf *b, const struct kvp_txn *m);
void kvp_put_u64(struct buf *b, uint64_t v); /* txn's answer, sessions, leases */
void kvp_put_u32(struct buf *b, uint32_t v); /* ttl */
void kvp_put_watch(struct buf *b, const struct kvp_watch *m);
void kvp_put_unwatch(struct buf *b, const struct kvp_unwatch *m);
/* One record of the answer to "events". */
void kvp_put_event(struct buf *b, uint32_t id, const struct kv_event *ev);

MUST_CHECK int kvp_get_hello(struct str s, struct kvp_hello *ret, struct err *err);
MUST_CHECK int kvp_get_hello_reply(struct str s, struct kvp_hello_reply *ret, struct err *err);
MUST_CHECK int kvp_get_key(struct str s, struct str *ret, struct err *err);
MUST_CHECK int kvp_get_item(struct str s, struct kv_item *ret, struct err *err);
MUST_CHECK int kvp_get_list(struct str s, struct kvp_list *ret, struct err *err);
MUST_CHECK int kvp_get_list_reply(struct str s, struct arena *a, struct kv_list *ret,
                                  struct err *err);
MUST_CHECK int kvp_get_txn(struct str s, struct arena *a, struct kvp_txn *ret, struct err *err);
MUST_CHECK int kvp_get_u64(struct str s, uint64_t *ret, struct err *err);
MUST_CHECK int kvp_get_u32(struct str s, uint32_t *ret, struct err *err);
MUST_CHECK int kvp_get_watch(struct str s, struct kvp_watch *ret, struct err *err);
MUST_CHECK int kvp_get_unwatch(struct str s, struct kvp_unwatch *ret, struct err *err);
/* Takes the next record off the front: 1 = one, 0 = the end. */
MUST_CHECK int kvp_next_event(struct str *rest, uint32_t *ret_id, struct kv_event *ret,
                              struct err *err);
