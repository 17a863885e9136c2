/* admin.h — predastore.sock: what an operator asks of the object store.
 * Methods:  bucket.list {account?, prefix?, after?, max?} -> {buckets: [{name, account, region,
 *           created_ns, versioning, objects, bytes}], is_truncated}; storage.stats {} -> counters;
 *           storage.drives {} -> {drives: [...]}; storage.check {} -> {status, problems: [...]};
 *           storage.scrub {action: "start" | "status", repair?} -> state of the scrub;
 *           storage.replace {drive} -> {}; storage.rebuild_index {} -> {} (at the next start);
 *           storage.compact {} -> {freed}; storage.unlock {} -> {}; health and log.level.
 * Not here: S3 (front.h).
 * Threads:  requests arrive on the loop and are worked on by the pool.
 * Memory:   admin_start() gives, admin_stop() takes.
 * Errors:   -EPERM "AccessDenied" for anybody but root and our own user. */
#pragma once
#include "net/service.h"
#include "predastore/front.h"
#include "predastore/lifecycle.h"

#define PREDASTORE_WHO_MAX 200 /* bytes of who accepts a loss */

struct admin;
struct admin_opts {
    struct service *svc;
    struct s3 *s3;
    struct front *front;
    struct lifecycle *lifecycle; /* may be NULL */
    const char *socket_path;
    const char *accept_path;  /* who accepts a loss, for the next start */
    const char *rebuild_path; /* a file there makes the next start discard the index */
    void (*on_unlock)(void *ctx);
    void *ctx;
};
MUST_CHECK int admin_start(const struct admin_opts *o, struct admin **ret, struct err *err);
/* After the pool is gone. NULL is fine. */
void admin_stop(struct admin *ad);
