/* vb.h — the service as a whole: one view of the store, one folder, pools of workers, one
 *        socket.
 * Not here: main() and its arguments (main.c). Inside the room see vb_int.h.
 * Threads:  vb_new() and vb_free() on the loop's thread, while the loop does not run.
 * Memory:   vb_new() gives; kv, loop and service are the caller's and live longer.
 * Errors:   negative errno and *err. */
#pragma once
#include "kv/kv.h"
#include "loop/loop.h"
#include "net/service.h"

struct vb;

struct vb_opts {
    struct kv *kv;
    struct loop *loop;
    struct service *service; /* for health and log.level; NULL in tests */
    const char *data_dir, *socket_path, *node;
    const char *helper;      /* path of spx-viperblock-import */
    const char *data_exe;    /* of spx-viperblock-data */
    const char *run_dir;     /* of data processes: "<run_dir>/viperblock" */
    const char *s3_socket;   /* of the object store; NULL = there is none: no snapshots */
    const char *root_key;    /* file of the root key, may come later; NULL = never */
    uint32_t gateway_uid;    /* who else may ask for blocks of snapshots; 0 = nobody */
    bool is_full_reported;   /* a full disk is an error in the guest; else it waits for room */
    uint64_t max_image_size; /* 0 = VB_MAX_IMAGE_SIZE */
};
#define VB_MAX_IMAGE_SIZE (UINT64_C(2) << 40)

MUST_CHECK int vb_new(const struct vb_opts *o, struct vb **ret, struct err *err);
/* Stops what runs (a clone or an import is abandoned and made again, or refused to whoever
 * asked), answers all who wait. */
void vb_free(struct vb *vb);
DEFINE_CLEANUP(struct vb *, vb_free);
/* When the machine or the cloud goes down: vb_free() then ends the data processes that serve
 * nobody. */
void vb_end_idle(struct vb *vb);
