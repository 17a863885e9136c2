#include "ostore/body_int.h"

#include "base/rand.h"
#include "base/time.h"
#include "codec/hex.h"
#include "crypto/secret.h"
#include "keys/keys.h"
#include "ostore/drive.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>

#define RING_NAME "keyring.json"
#define RING_TMP  ".tmp-keyring.json"

/* What changes when a key is added: never a key that is in use, so that pointers stay good. */
struct ring_state {
    pthread_mutex_t lock; /* guards the members below */
    struct arena *arena;
    struct body_ring ring;
    struct keywrap *wraps[BODY_KEYS_MAX]; /* of ring.v */
};
struct body_keys {
    struct drives *drives;
    struct keys *keys;
    struct ring_state *st;
};

static int purpose(const struct body_keys *k, uint32_t id, char out[80])
{
    char set[33];
    hex_encode_to(drives_set_id(k->drives), 16, set);
    return snprintf(out, 80, "object-store/%s/%08x", set, id);
}

/* --- the file on the drives --- */

/* -ENOENT: the drive has none. */
static int read_one(const struct body_keys *k, unsigned idx, struct arena *a,
                    struct body_ring *ret, struct err *err)
{
    struct fault_fs *fs = drives_fs(k->drives);
    AUTO_FD fd = fault_open(fs, drives_dir(k->drives, idx, DRIVE_ROOT), RING_NAME, O_RDONLY, 0);
    if (fd < 0) {
        return fd;
    }
    AUTO_FREE char *text = malloc(BODY_RING_SIZE_MAX + 1);
    if (!text) {
        return -ENOMEM;
    }
    ssize_t n = fault_pread(fs, fd, text, BODY_RING_SIZE_MAX + 1, 0);
    if (n < 0) {
        return (int)n;
    }
    int r = body_ring_read(str_n(text, (size_t)n), a, ret, err);
    if (r == 0 && memcmp(ret->set_id, drives_set_id(k->drives), 16) != 0) {
        return fail(err, -EBADMSG, "BadKeyRing", "the key ring on %s is of another set",
                    drives_path(k->drives, idx));
    }
    return r;
}

static int write_one(const struct body_keys *k, unsigned idx, struct str text)
{
    struct fault_fs *fs = drives_fs(k->drives);
    int dir = drives_dir(k->drives, idx, DRIVE_ROOT);
    AUTO_FD fd = fault_open(fs, dir, RING_TMP, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int r = fd < 0 ? fd : fault_pwrite(fs, fd, text.p, text.n, 0);
    r = r < 0 ? r : fault_fdatasync(fs, fd);
    r = r < 0 ? r : fault_rename(fs, dir, RING_TMP, RING_NAME);
    return r < 0 ? r : fault_sync_dir(fs, dir);
}

/* To all drives of 'which' that can be written; at least one has to take it. A full drive that
 * does not take it gets it at the next start, or when it is healed. */
static int write_all(struct body_keys *k, uint32_t which, struct err *err)
{
    AUTO_BUF text;
    buf_init(&text, BODY_RING_SIZE_MAX);
    body_ring_write(&k->st->ring, &text);
    if (!buf_ok(&text)) {
        return fail(err, -E2BIG, "KeyRingFull", "the key ring of the object store is full");
    }
    unsigned n_done = 0;
    int first = 0;
    which &= drives_writable(k->drives);
    for (unsigned i = 0; i < drives_n(k->drives); i++) {
        if (!(which >> i & 1)) {
            continue;
        }
        int r = write_one(k, i, buf_str(&text));
        n_done += r == 0;
        first = first < 0 ? first : r;
        if (r == -ENOSPC || r == -EDQUOT) {
            drives_note_full(k->drives, i);
        } else if (r < 0) {
            drives_fault(k->drives, i, r, "writing the key ring");
        }
    }
    if (which != 0 && n_done == 0) {
        return fail(err, first, "WriteFailed",
                    "the key ring of the object store cannot be written");
    }
    return 0;
}

/* --- keys --- */

static int unwrap(const struct body_keys *k, size_t i, struct err *err)
{
    struct body_ring_key *v = &k->st->ring.v[i];
    char what[80];
    int n = purpose(k, v->id, what);
    AUTO_SECRET key = SECRET_INIT;
    int r = keys_unwrap(k->keys, str_n(what, (size_t)n), v->wrapped, &key, err);
    if (r < 0) {
        return r;
    }
    if (secret_str(&key).n != KEYWRAP_KEY_SIZE) {
        return fail(err, -EBADMSG, "BadKeyRing",
                    "a key of the object store is of a wrong size");
    }
    k->st->wraps[i] = keywrap_new((const uint8_t *)secret_str(&key).p);
    return 0;
}

/* A fresh key at the end of the ring, current. */
static int add_key(struct body_keys *k, struct err *err)
{
    struct ring_state *st = k->st;
    struct body_ring *ring = &st->ring;
    if (ring->n == BODY_KEYS_MAX) {
        return fail(err, -E2BIG, "KeyRingFull", "the key ring of the object store is full");
    }
    /* A random id: a ring that was lost and made anew does not name other keys by old ids. */
    uint32_t id = 0;
    for (bool is_free = false; !is_free;) {
        rand_bytes(&id, sizeof(id));
        is_free = id != 0;
        for (size_t i = 0; i < ring->n; i++) {
            is_free &= ring->v[i].id != id;
        }
    }
    char what[80];
    int n = purpose(k, id, what);
    AUTO_SECRET key = SECRET_INIT;
    AUTO_BUF wrapped;
    buf_init(&wrapped, 1024);
    int r = secret_random(&key, KEYWRAP_KEY_SIZE);
    r = r < 0 ? r : keys_wrap(k->keys, str_n(what, (size_t)n), secret_str(&key), &wrapped, err);
    struct str text = r < 0 ? STR_NONE : arena_str_dup(st->arena, buf_str(&wrapped));
    if (r < 0 || !str_is_set(text)) {
        return fail(err, r < 0 ? r : -ENOMEM, "NoMemory", "no memory for a key");
    }
    st->wraps[ring->n] = keywrap_new((const uint8_t *)secret_str(&key).p);
    ring->v[ring->n++] =
        (struct body_ring_key){.id = id, .create_ns = time_wall_ns(), .wrapped = text};
    ring->current = id;
    ring->seq++;
    return 0;
}

/* Adds the keys of 'from' that the ring has not; the newer one's current key is current. */
static int merge(struct body_ring *to, const struct body_ring *from, struct err *err)
{
    for (size_t i = 0; i < from->n; i++) {
        size_t at = 0;
        while (at < to->n && to->v[at].id != from->v[i].id) {
            at++;
        }
        if (at == to->n && to->n == BODY_KEYS_MAX) {
            return fail(err, -E2BIG, "KeyRingFull", "the key rings of the drives are too many");
        }
        if (at == to->n) {
            to->v[to->n++] = from->v[i];
        }
    }
    if (from->seq > to->seq) {
        to->seq = from->seq;
        to->current = from->current;
    }
    return 0;
}

/* Reads the rings of all drives; *ret_lacking: those that have not what the union says. */
static int load(struct body_keys *k, uint32_t *ret_lacking, struct err *err)
{
    AUTO_FREE struct body_ring *one = malloc(sizeof(*one));
    if (!one) {
        return -ENOMEM;
    }
    struct body_ring *ring = &k->st->ring;
    uint32_t readable = drives_readable(k->drives);
    uint64_t seq[DRIVES_MAX] = {0};
    size_t n[DRIVES_MAX] = {0};
    struct err first = ERR_INIT;
    memcpy(ring->set_id, drives_set_id(k->drives), 16);
    for (unsigned i = 0; i < drives_n(k->drives); i++) {
        int r = readable >> i & 1 ? read_one(k, i, k->st->arena, one, &first) : -ENOENT;
        if (r == -ENOTSUP || r == -ENOMEM) {
            return fail(err, r, "BadKeyRing", "%s: %s", drives_path(k->drives, i), first.msg);
        }
        if (r < 0 && r != -ENOENT) {
            (void)fail(&first, r, "BadKeyRing", "the key ring on %s cannot be read",
                       drives_path(k->drives, i));
        }
        if (r == 0) {
            r = merge(ring, one, err);
            if (r < 0) {
                return r;
            }
            seq[i] = one->seq;
            n[i] = one->n;
        }
    }
    if (ring->n == 0 && first.code) {
        /* There was one: another in its place would make every sealed body unreadable. */
        return fail(err, first.code, first.name, "%s", first.msg);
    }
    *ret_lacking = 0;
    for (unsigned i = 0; i < drives_n(k->drives); i++) {
        *ret_lacking |= (uint32_t)(seq[i] != ring->seq || n[i] != ring->n) << i;
    }
    return 0;
}

static int load_or_make(struct body_keys *k, struct err *err)
{
    uint32_t lacking = 0;
    int r = load(k, &lacking, err);
    if (r == 0 && k->st->ring.n == 0) {
        r = add_key(k, err);
        lacking = UINT32_MAX;
    } else {
        for (size_t i = 0; r == 0 && i < k->st->ring.n; i++) {
            r = unwrap(k, i, err);
        }
    }
    return r < 0 ? r : write_all(k, lacking, err);
}

int body_keys_open(struct drives *d, struct keys *keys, struct body_keys **ret, struct err *err)
{
    if (!keys || keys_is_locked(keys)) {
        return fail(err, -EACCES, "Locked", "the object store waits for the root key");
    }
    struct body_keys *k = calloc(1, sizeof(*k));
    struct ring_state *st = calloc(1, sizeof(*st));
    if (!k || !st || pthread_mutex_init(&st->lock, NULL) != 0) {
        abort();
    }
    st->arena = arena_new((size_t)DRIVES_MAX * BODY_RING_SIZE_MAX);
    *k = (struct body_keys){.drives = d, .keys = keys, .st = st};
    int r = load_or_make(k, err);
    if (r < 0) {
        body_keys_close(k);
        return fail(err, r, "KeyRingFailed", "the key ring of the object store cannot be read");
    }
    *ret = k;
    return 0;
}

void body_keys_close(struct body_keys *k)
{
    if (!k) {
        return;
    }
    for (size_t i = 0; i < k->st->ring.n; i++) {
        keywrap_free(k->st->wraps[i]);
    }
    arena_free(k->st->arena);
    pthread_mutex_destroy(&k->st->lock);
    free(k->st);
    free(k);
}

int body_keys_spread(struct body_keys *k, struct err *err)
{
    AUTO_FREE struct body_ring *one = malloc(sizeof(*one));
    struct arena *a = arena_new((size_t)DRIVES_MAX * BODY_RING_SIZE_MAX);
    if (!one) {
        arena_free(a);
        return fail(err, -ENOMEM, "NoMemory", "no memory for a key ring");
    }
    uint32_t lacking = 0;
    pthread_mutex_lock(&k->st->lock);
    for (unsigned i = 0; i < drives_n(k->drives); i++) {
        bool has_it = drives_readable(k->drives) >> i & 1 &&
                      read_one(k, i, a, one, NULL) == 0 && one->seq == k->st->ring.seq &&
                      one->n == k->st->ring.n;
        lacking |= (uint32_t)!has_it << i;
    }
    int r = write_all(k, lacking, err);
    pthread_mutex_unlock(&k->st->lock);
    arena_free(a);
    return r;
}

int body_keys_rotate(struct body_keys *k, struct err *err)
{
    struct ring_state *st = k->st;
    pthread_mutex_lock(&st->lock);
    uint32_t before = st->ring.current;
    int r = add_key(k, err);
    if (r == 0) {
        r = write_all(k, UINT32_MAX, err);
        if (r < 0) { /* some drive may have it: it stays in the ring, unused */
            st->ring.current = before;
        }
    }
    pthread_mutex_unlock(&st->lock);
    return r;
}

uint32_t body_keys_current(const struct body_keys *k)
{
    pthread_mutex_lock(&k->st->lock);
    uint32_t id = k->st->ring.current;
    pthread_mutex_unlock(&k->st->lock);
    return id;
}

static const struct keywrap *find(const struct body_keys *k, uint32_t id)
{
    const struct keywrap *w = NULL;
    for (size_t i = 0; i < k->st->ring.n; i++) {
        if (k->st->ring.v[i].id == id) {
            w = k->st->wraps[i];
        }
    }
    return w;
}

int body_keys_wrap(const struct body_keys *k, const uint8_t key[BODY_KEY_SIZE],
                   uint8_t out[BODY_WRAPPED_SIZE], uint32_t *ret_id)
{
    pthread_mutex_lock(&k->st->lock);
    *ret_id = k->st->ring.current;
    const struct keywrap *w = find(k, *ret_id);
    pthread_mutex_unlock(&k->st->lock);
    return keywrap_wrap(w, key, BODY_KEY_SIZE, out);
}

int body_keys_unwrap(const struct body_keys *k, uint32_t id, struct str wrapped,
                     uint8_t ret_key[BODY_KEY_SIZE], struct err *err)
{
    if (!k) {
        return fail(err, -EACCES, "Locked", "the object store waits for the root key");
    }
    pthread_mutex_lock(&k->st->lock);
    const struct keywrap *w = find(k, id);
    pthread_mutex_unlock(&k->st->lock);
    if (!w) {
        return fail(err, -ENOKEY, "NoBodyKey", "the key ring has no key %08x", id);
    }
    if (wrapped.n != BODY_WRAPPED_SIZE ||
        keywrap_unwrap(w, (const uint8_t *)wrapped.p, wrapped.n, ret_key) < 0) {
        return fail(err, -EBADMSG, "BadBodyKey", "the wrapped key of a body is damaged");
    }
    return 0;
}
