/* service_jobs.h — methods of a service's own socket that take a while: JSON in and out, for root
 *                  and the service's user, on a pool.
 * Not here: the methods that every service has (service.h), the frames (rpc.h).
 * Threads:  requests come on the loop's thread; a method runs on one thread of the pool.
 * Memory:   what a method makes lives in the job's arena, until it is answered.
 * Errors:   of a method go to who asked; "SlowDown" when the pool has no room, "UnknownMethod",
 *           "AccessDenied". */
#pragma once
#include "codec/json.h"
#include "net/service.h"

struct pool;

struct service_job {
    void *ctx; /* of the socket */
    struct arena *a;
};
struct service_method {
    const char *name;
    /* 'rq' is what was asked; members of the answer go into 'w', whose object is open. */
    int (*fn)(struct service_job *j, struct json *rq, struct jw *w, struct err *err);
};
struct service_jobs { /* borrowed while requests come and run */
    struct service *svc;
    struct pool *pool;
    const char *name;    /* "awsgw", for messages */
    const char *refusal; /* what somebody without rights is told */
    size_t arena_max;
    const struct service_method *methods;
    size_t n_methods;
    void *ctx;
};
/* One request, as rpc_server_ops.on_request gets it. Descriptors are closed. */
void service_jobs_request(const struct service_jobs *s, struct rpc_req *req, struct str method,
                          struct str payload, int *fds, size_t n_fds);
