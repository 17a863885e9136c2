#include "viperblock/store.h"
#include "snap/snap.h"
#include "viperblock/vb_int.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>

#define BUCKET ".viperblock"

struct store {
    pthread_mutex_t mu;
    struct snap_store *snap; /* GUARDED_BY(mu) until it is set, then constant */
};

struct store *store_new(void)
{
    struct store *s = calloc(1, sizeof(*s));
    if (!s) {
        abort();
    }
    pthread_mutex_init(&s->mu, NULL);
    return s;
}

void store_free(struct store *s)
{
    if (!s) {
        return;
    }
    snap_close(s->snap);
    pthread_mutex_destroy(&s->mu);
    free(s);
}

int store_get(struct vb *vb, struct snap_store **ret, struct err *err)
{
    struct store *s = vb->store;
    char pending[PATH_MAX];
    if (!vb->o.s3_socket) {
        return fail(err, -EAGAIN, "StoreUnavailable", "this node has no object store");
    }
    if (snprintf(pending, sizeof(pending), "%s/pending", vb->o.data_dir) >= PATH_MAX) {
        return fail(err, -ENAMETOOLONG, "OpenFailed", "%s is too long", vb->o.data_dir);
    }
    struct snap_opts o = {
        .socket = vb->o.s3_socket, .bucket = BUCKET, .pending_dir = pending, .keys = vb->keys};
    pthread_mutex_lock(&s->mu);
    int rc = s->snap ? 0 : snap_open(&o, &s->snap, err);
    *ret = s->snap;
    pthread_mutex_unlock(&s->mu);
    return rc;
}
