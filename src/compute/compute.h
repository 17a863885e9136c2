/* compute.h — the service: specs in, running guests and status records out.
 * Not here: main() and its arguments (main.c), one guest's parts (compute_int.h).
 * Threads:  the loop thread owns everything; pool threads do what blocks (launch.c, store.c).
 * Memory:   compute_new() gives; options are borrowed and must outlive it.
 * Errors:   negative errno and *err. compute_free() touches no guest: they run on. */
#pragma once
#include "compute/host.h"
#include "compute/vm_fsm.h"
#include "kv/kv.h"
#include "loop/loop.h"
#include "model/config.h"
#include "net/service.h"

struct compute;

struct compute_opts {
    const struct config *cfg;
    struct kv *kv;
    struct loop *loop;
    struct service *service; /* health and log.level; may be NULL in tests */
    const struct host *host;
    const char *monitor_path, *qemu_path; /* qemu_path NULL = by name */
    struct vm_limits limits;
    /* how long one request to let a disk go is waited for before it is repeated */
    uint64_t detach_ns;
};

/* Waits for the first copy of the store, then starts to reconcile on the loop. */
MUST_CHECK int compute_new(const struct compute_opts *o, struct compute **ret, struct err *err);
void compute_free(struct compute *c);
DEFINE_CLEANUP(struct compute *, compute_free);
