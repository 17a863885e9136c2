#include "snap/snap.h"

#include "base/file.h"
#include "snap/snap_int.h"

#include <errno.h>
#include <fcntl.h>

#define CACHE_MAX     (32u << 20) /* bytes of pages and manifests */
#define COLLECT_NAMES (3u << 20)

static void store_init(struct snap_store *s, const struct snap_opts *o)
{
    *s = (struct snap_store){.o = *o, .dir = -1};
    pthread_mutex_init(&s->collect_mu, NULL);
    pthread_mutex_init(&s->roots_mu, NULL);
    pthread_mutex_init(&s->mu, NULL);
    pthread_cond_init(&s->deleted, NULL);
    snap_cache_init(&s->cache, CACHE_MAX);
    snap_names_init(&s->touched, SIZE_MAX);
    s->uploads = omap_new();
    s->keys = omap_new();
    s->o.collect_names = o->collect_names ? o->collect_names : COLLECT_NAMES;
}

void snap_close(struct snap_store *s)
{
    if (!s) {
        return;
    }
    snap_uploads_close(s);
    snap_keys_done(s);
    omap_free(s->uploads, NULL);
    omap_free(s->keys, NULL);
    snap_cache_done(&s->cache);
    snap_names_done(&s->touched);
    while (s->n_scratch) {
        free(s->scratch[--s->n_scratch]);
    }
    if (s->dir >= 0) {
        close(s->dir);
    }
    snap_s3_free(s->s3);
    pthread_cond_destroy(&s->deleted);
    pthread_mutex_destroy(&s->mu);
    pthread_mutex_destroy(&s->roots_mu);
    pthread_mutex_destroy(&s->collect_mu);
    free(s);
}

int snap_open(const struct snap_opts *o, struct snap_store **ret, struct err *err)
{
    AUTO(snap_closep) struct snap_store *s = malloc(sizeof(*s));
    if (!s) {
        return fail(err, -ENOMEM, "NoMemory", "no memory for the store of snapshots");
    }
    store_init(s, o);
    const struct snap_s3_opts so = {.socket = o->socket,
                                    .bucket = o->bucket,
                                    .n_conns = o->n_conns,
                                    .stall_ns = o->stall_ns,
                                    .on_request = o->on_request,
                                    .ctx = o->ctx};
    s->s3 = snap_s3_new(&so);
    int r = file_mkdirs(o->pending_dir, 0700, err);
    if (r < 0) {
        return r;
    }
    s->dir = fault_open_root(o->fs, o->pending_dir);
    if (s->dir < 0) {
        return fail(err, s->dir, "OpenFailed", "%s cannot be opened", o->pending_dir);
    }
    if ((r = snap_uploads_open(s, err)) < 0) {
        return r;
    }
    *ret = steal(&s);
    return 0;
}
