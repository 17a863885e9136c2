#include "ostore/drive_int.h"

#include "base/rand.h"
#include "base/time.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>

#define STALL_NS        (30 * NS_PER_S)
#define SPACE_NS        NS_PER_S
/* A large disk with more than this left is not full, whatever its percents say. */
#define NEAR_FULL_AVAIL ((uint64_t)32 << 30)
#define FULL_AVAIL      ((uint64_t)8 << 30)
#define SLOW_TIMES      8
#define SLOW_MIN_NS     (20 * NS_PER_MS)
#define SLOW_MAX_NS     (2 * NS_PER_S)

/* What was found in the folder of each drive. */
struct found {
    bool has_folder, is_empty, has_table;
    int rc; /* of reading the table */
    struct drive_table table;
    struct err why;
};

unsigned drives_n(const struct drives *d)
{
    return d->n;
}

struct fault_fs *drives_fs(const struct drives *d)
{
    return d->fs;
}

const uint8_t *drives_set_id(const struct drives *d)
{
    return d->table.set_id;
}

const char *drives_path(const struct drives *d, unsigned idx)
{
    return d->v[idx].path;
}

enum drive_state drives_state(const struct drives *d, unsigned idx)
{
    return atomic_load(&d->v[idx].state);
}

uint32_t drives_writable(const struct drives *d)
{
    uint32_t bits = 0;
    for (unsigned i = 0; i < d->n; i++) {
        enum drive_state s = drives_state(d, i);
        bits |= s == DRIVE_OK || s == DRIVE_HEALING ? 1u << i : 0;
    }
    return bits;
}

uint32_t drives_readable(const struct drives *d)
{
    return drives_writable(d);
}

/* Opens a folder once; who comes second closes his own. */
static int open_once(atomic_int *slot, struct fault_fs *fs, int dir, const char *name,
                     bool is_synced)
{
    int fd = atomic_load(slot);
    if (fd >= 0) {
        return fd;
    }
    int rc = fault_mkdir(fs, dir, name, 0700);
    if (rc < 0 && rc != -EEXIST) {
        return rc;
    }
    fd = fault_open_dir(fs, dir, name);
    if (fd < 0) {
        return fd;
    }
    rc = is_synced ? fault_sync_dir(fs, dir) : 0;
    if (rc < 0) {
        close(fd);
        return rc;
    }
    int none = -1;
    if (!atomic_compare_exchange_strong(slot, &none, fd)) {
        close(fd);
        fd = none;
    }
    return fd;
}

int drives_dir(const struct drives *d, unsigned idx, enum drive_dir which)
{
    /* The slots are a cache: a look at them changes nothing that anybody sees. */
    struct drive *v = (struct drive *)(uintptr_t)&d->v[idx];
    int root = atomic_load(&v->dirs[DRIVE_ROOT]);
    if (root < 0 || which != DRIVE_INDEX) {
        return root < 0 ? -1 : atomic_load(&v->dirs[which]);
    }
    int fd = open_once(&v->dirs[DRIVE_INDEX], d->fs, root, drive_dir_names[DRIVE_INDEX], true);
    return fd < 0 ? -1 : fd;
}

int drives_data_dir(struct drives *d, unsigned idx, uint8_t first)
{
    struct drive *v = &d->v[idx];
    int data = atomic_load(&v->dirs[DRIVE_DATA]);
    if (data < 0) {
        return -ENODEV;
    }
    char name[4] = "";
    (void)snprintf(name, sizeof(name), "%02x", first);
    return open_once(&v->data_dirs[first], d->fs, data, name, true);
}

int drives_make_folders(struct drives *d, unsigned idx)
{
    struct drive *v = &d->v[idx];
    int data = atomic_load(&v->dirs[DRIVE_DATA]);
    if (data < 0) {
        return -ENODEV;
    }
    char name[4] = "";
    int rc = 0;
    for (unsigned first = 0; first < 256 && rc == 0; first++) {
        (void)snprintf(name, sizeof(name), "%02x", first);
        rc = fault_mkdir(d->fs, data, name, 0700);
        rc = rc == -EEXIST ? 0 : rc;
    }
    rc = rc < 0 ? rc : fault_sync_dir(d->fs, data);
    for (unsigned first = 0; first < 256 && rc == 0; first++) {
        (void)snprintf(name, sizeof(name), "%02x", first);
        int fd = open_once(&v->data_dirs[first], d->fs, data, name, false);
        rc = fd < 0 ? fd : 0;
    }
    return rc;
}

void drives_note_read(struct drives *d, unsigned idx, uint64_t ns)
{
    uint64_t old = atomic_load_explicit(&d->v[idx].read_ns, memory_order_relaxed);
    uint64_t now = old == 0 ? ns : (7 * old + ns) / 8;
    atomic_store_explicit(&d->v[idx].read_ns, now, memory_order_relaxed);
}

uint64_t drives_slow_ns(const struct drives *d, unsigned idx)
{
    uint64_t ns = SLOW_TIMES * atomic_load_explicit(&d->v[idx].read_ns, memory_order_relaxed);
    return ns < SLOW_MIN_NS ? SLOW_MIN_NS : ns > SLOW_MAX_NS ? SLOW_MAX_NS : ns;
}

/* --- space --- */

static void look_at_space(struct drives *d, unsigned idx, uint64_t now)
{
    struct drive *v = &d->v[idx];
    int root = atomic_load(&v->dirs[DRIVE_ROOT]);
    struct statvfs st;
    if (root < 0 || fstatvfs(root, &st) < 0) {
        return; /* as it was */
    }
    uint64_t kept = st.f_bfree > st.f_bavail ? st.f_bfree - st.f_bavail : 0; /* for root */
    pthread_mutex_lock(&d->lock);
    v->total = (st.f_blocks - MIN(kept, (uint64_t)st.f_blocks)) * st.f_frsize;
    v->avail = st.f_bavail * st.f_frsize;
    v->space_ns = now;
    pthread_mutex_unlock(&d->lock);
}

static bool is_stale(struct drives *d, unsigned idx, uint64_t now)
{
    pthread_mutex_lock(&d->lock);
    uint64_t at = d->v[idx].space_ns;
    pthread_mutex_unlock(&d->lock);
    return at == 0 || now - at >= SPACE_NS;
}

static enum drives_space space_of(const struct drives *d, const struct drive *v, uint64_t now)
{
    if (now < v->full_until_ns) {
        return SPACE_FULL;
    }
    uint64_t used_pct =
        v->total ? (v->total - MIN(v->avail, v->total)) / (v->total / 100 + 1) : 0;
    return used_pct >= d->full_pct && v->avail < FULL_AVAIL             ? SPACE_FULL
           : used_pct >= d->near_full_pct && v->avail < NEAR_FULL_AVAIL ? SPACE_NEAR_FULL
                                                                        : SPACE_OK;
}

enum drives_space drives_space(struct drives *d)
{
    enum drives_space worst = SPACE_OK;
    uint64_t now = time_mono_ns();
    for (unsigned i = 0; i < d->n; i++) {
        if (!(drives_writable(d) & 1u << i)) {
            continue;
        }
        if (is_stale(d, i, now)) {
            look_at_space(d, i, now);
        }
        pthread_mutex_lock(&d->lock);
        enum drives_space s = space_of(d, &d->v[i], now);
        pthread_mutex_unlock(&d->lock);
        worst = s > worst ? s : worst;
    }
    return worst;
}

void drives_note_full(struct drives *d, unsigned idx)
{
    pthread_mutex_lock(&d->lock);
    d->v[idx].full_until_ns = time_mono_ns() + SPACE_NS;
    d->v[idx].space_ns = 0;
    pthread_mutex_unlock(&d->lock);
}

void drives_facts(struct drives *d, unsigned idx, struct drive_facts *ret)
{
    uint64_t now = time_mono_ns();
    if ((drives_writable(d) & 1u << idx) && is_stale(d, idx, now)) {
        look_at_space(d, idx, now);
    }
    pthread_mutex_lock(&d->lock);
    const struct drive *v = &d->v[idx];
    *ret = (struct drive_facts){.state = atomic_load(&v->state),
                                .path = v->path,
                                .total = v->total,
                                .avail = v->avail,
                                .read_ns = atomic_load(&v->read_ns)};
    memcpy(ret->id, d->table.v[idx].id, sizeof(ret->id));
    memcpy(ret->why, v->why, sizeof(ret->why));
    pthread_mutex_unlock(&d->lock);
}

/* --- opening --- */

static int look_at(struct drives *d, unsigned idx, struct found *f, struct err *err)
{
    struct drive *v = &d->v[idx];
    v->root = fault_open_root(d->fs, v->path);
    if (v->root < 0) {
        (void)fail(&f->why, v->root, "DriveMissing", "cannot be opened (%d)", v->root);
        return 0;
    }
    atomic_store(&v->dirs[DRIVE_ROOT], v->root);
    if (flock(v->root, LOCK_EX | LOCK_NB) < 0) {
        return fail(err, -EBUSY, "DriveBusy", "%s is in use by another process", v->path);
    }
    f->rc = drive_is_empty(v->root, &f->is_empty);
    if (f->rc < 0) {
        (void)fail(&f->why, f->rc, "DriveMissing", "cannot be read (%d)", f->rc);
        return 0;
    }
    f->has_folder = true;
    if (!f->is_empty) {
        f->rc = drive_table_read(d->fs, v->root, &f->table, &f->why);
        f->has_table = f->rc == 0;
    }
    return f->rc == -ENOTSUP ? fail(err, f->rc, "BadDrive", "%s: %s", v->path, f->why.msg) : 0;
}

static bool is_same_table(const struct drive_table *a, const struct drive_table *b)
{
    bool is_same = a->n == b->n && a->is_new == b->is_new;
    for (unsigned i = 0; i < a->n && is_same; i++) {
        is_same = memcmp(a->v[i].id, b->v[i].id, DRIVE_ID_SIZE) == 0 &&
                  a->v[i].state == b->v[i].state && a->v[i].since == b->v[i].since;
    }
    return is_same;
}

/* All tables are of one set, of this many drives, each at its place; the newest is taken. */
static int choose_table(struct drives *d, const struct found *f, struct err *err)
{
    const struct drive_table *best = NULL;
    for (unsigned i = 0; i < d->n; i++) {
        const struct drive_table *t = &f[i].table;
        if (!f[i].has_table) {
            continue;
        }
        if (best && memcmp(t->set_id, best->set_id, DRIVE_ID_SIZE) != 0) {
            return fail(err, -ENOTUNIQ, "ForeignDrive", "%s is a drive of another set",
                        d->v[i].path);
        }
        if (t->place != i || t->n != d->n) {
            return fail(err, -ENOTUNIQ, "ForeignDrive", "%s is drive %u of %u, not %u of %u",
                        d->v[i].path, t->place, t->n, i, d->n);
        }
        if (best && t->generation == best->generation && !is_same_table(t, best)) {
            return fail(err, -ENOTUNIQ, "SplitSet",
                        "%s and another drive went on without each other", d->v[i].path);
        }
        best = !best || t->generation > best->generation ? t : best;
    }
    if (best) {
        d->table = *best;
    }
    return 0;
}

/* A drive against the table: what it is from now on. */
static int judge(struct drives *d, unsigned idx, const struct found *f, struct err *err)
{
    struct drive *v = &d->v[idx];
    struct member *m = &d->table.v[idx];
    if (!f->has_table) {
        bool is_here = f->has_folder && !f->is_empty && f->rc != -ENOENT;
        atomic_store(&v->state, is_here ? DRIVE_FAULTED : DRIVE_MISSING);
        const char *why = f->why.code ? f->why.msg : "the folder is empty";
        (void)snprintf(v->why, sizeof(v->why), "%.150s", why);
        if (m->state == MEMBER_OK || m->state == MEMBER_HEALING) {
            drives_set_member(d, idx, is_here ? MEMBER_FAULTED : MEMBER_AWAY);
        }
        return 0;
    }
    if (memcmp(f->table.v[idx].id, m->id, DRIVE_ID_SIZE) != 0) {
        return fail(err, -ENOTUNIQ, "ForeignDrive",
                    "%s was replaced by another drive of this set", v->path);
    }
    if (m->state == MEMBER_FAULTED) {
        atomic_store(&v->state, DRIVE_FAULTED);
        (void)snprintf(v->why, sizeof(v->why), "it failed before; replace it");
        return 0;
    }
    if (m->state == MEMBER_AWAY) {
        if (f->table.generation >= m->since) {
            return fail(err, -ENOTUNIQ, "SplitSet",
                        "%s and another drive went on without each other", v->path);
        }
        drives_set_member(d, idx, MEMBER_HEALING);
    }
    atomic_store(&v->state, m->state == MEMBER_OK ? DRIVE_OK : DRIVE_HEALING);
    return 0;
}

/* The folders become drives: a file in each that says so, then again without "new". A cut in
 * between leaves a set in which nothing is stored, and the next start goes on. */
static int make_set(struct drives *d, const struct found *f, struct err *err)
{
    bool has_table = false;
    for (unsigned i = 0; i < d->n; i++) {
        has_table = has_table || f[i].has_table;
        if (!f[i].has_folder || (!f[i].has_table && !f[i].is_empty)) {
            return f[i].has_folder
                       ? fail(err, -ENOTEMPTY, "ForeignDrive", "%s is not empty", d->v[i].path)
                       : fail(err, -EIO, "TooFewDrives",
                              "%s: a new set needs all its drives: %s", d->v[i].path,
                              f[i].why.msg);
        }
    }
    struct drive_table *t = &d->table;
    if (!has_table) {
        t->n = d->n;
        rand_bytes(t->set_id, sizeof(t->set_id));
        for (unsigned i = 0; i < d->n; i++) {
            rand_bytes(t->v[i].id, DRIVE_ID_SIZE);
        }
    }
    t->is_new = true;
    t->generation++;
    for (unsigned i = 0; i < d->n; i++) {
        t->v[i].state = MEMBER_OK;
        t->v[i].since = t->generation;
        atomic_store(&d->v[i].state, DRIVE_OK);
    }
    int rc = drives_persist(d);
    if (rc == 0 && drives_writable(d) == (1u << d->n) - 1) {
        pthread_mutex_lock(&d->lock);
        t->is_new = false;
        t->generation++;
        pthread_mutex_unlock(&d->lock);
        rc = drives_persist(d);
    }
    if (rc < 0) {
        return fail(err, rc, "DriveFull", "a drive has no room");
    }
    for (unsigned i = 0; i < d->n; i++) {
        if (drives_state(d, i) != DRIVE_OK) {
            return fail(err, -EIO, "TooFewDrives", "%s: a new set needs all its drives: %s",
                        d->v[i].path, d->v[i].why);
        }
    }
    return 0;
}

static int take_set(struct drives *d, const struct found *f, struct err *err)
{
    uint64_t found = d->table.generation;
    bool is_behind = false;
    for (unsigned i = 0; i < d->n; i++) {
        int rc = judge(d, i, &f[i], err);
        if (rc < 0) {
            return rc;
        }
        is_behind = is_behind || (f[i].has_table && f[i].table.generation < found);
    }
    if (drives_writable(d) == 0) {
        return fail(err, -EIO, "TooFewDrives", "no drive of the set can be used");
    }
    d->persisted = is_behind || d->table.generation != found ? 0 : found;
    (void)drives_persist(d);
    return 0;
}

static int open_found(struct drives *d, struct found *f, struct err *err)
{
    bool has_table = false, is_new = true;
    for (unsigned i = 0; i < d->n; i++) {
        int rc = look_at(d, i, &f[i], err);
        if (rc < 0) {
            return rc;
        }
        if (d->v[i].root >= 0 &&
            (lane_new(&d->v[i].lane) < 0 || lane_new(&d->v[i].back_lane) < 0)) {
            return fail(err, -EAGAIN, "OpenFailed", "no thread for %s", d->v[i].path);
        }
        has_table = has_table || f[i].has_table;
        is_new = is_new && (!f[i].has_table || f[i].table.is_new);
    }
    int rc = choose_table(d, f, err);
    if (rc < 0) {
        return rc;
    }
    bool is_damaged = false;
    for (unsigned i = 0; i < d->n; i++) {
        is_damaged = is_damaged || (f[i].has_folder && !f[i].is_empty && !f[i].has_table);
        if (is_damaged && !has_table) {
            return fail(err, f[i].rc == -ENOENT ? -ENOTEMPTY : -EUCLEAN, "BadDrive", "%s: %s",
                        d->v[i].path, f[i].why.msg);
        }
    }
    rc = is_new ? make_set(d, f, err) : take_set(d, f, err);
    for (unsigned i = 0; i < d->n && rc == 0; i++) {
        if (!(drives_writable(d) & 1u << i)) {
            continue;
        }
        int dirs[DRIVE_DIR_N], made = drive_make_dirs(d->fs, d->v[i].root, dirs);
        for (unsigned k = DRIVE_LOG; k <= DRIVE_DATA; k++) {
            atomic_store(&d->v[i].dirs[k], dirs[k]);
        }
        if (made < 0) {
            drives_fault(d, i, made == -ENOSPC ? -EIO : made, "making its folders");
        }
    }
    return rc < 0 || drives_writable(d)
               ? rc
               : fail(err, -EIO, "TooFewDrives", "no drive of the set can be used");
}

int drives_open(const struct drives_opts *o, struct drives **ret, struct err *err)
{
    if (o->n < 1 || o->n > DRIVES_MAX) {
        return fail(err, -EINVAL, "TooFewDrives", "1 to %d drives are needed, not %u",
                    DRIVES_MAX, o->n);
    }
    struct drives *d = calloc(1, sizeof(*d));
    struct found *f = calloc(o->n, sizeof(*f));
    if (!d || !f) {
        abort();
    }
    d->fs = o->fs;
    d->n = o->n;
    d->near_full_pct = o->near_full_pct ? o->near_full_pct : 90;
    d->full_pct = o->full_pct ? o->full_pct : 95;
    d->stall_ns = o->stall_ns ? o->stall_ns : STALL_NS;
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->persist, NULL);
    for (unsigned i = 0; i < d->n; i++) {
        struct drive *v = &d->v[i];
        v->path = strdup(o->paths[i]);
        v->root = -1;
        for (unsigned k = 0; k < DRIVE_DIR_N; k++) {
            atomic_init(&v->dirs[k], -1);
        }
        for (unsigned k = 0; k < 256; k++) {
            atomic_init(&v->data_dirs[k], -1);
        }
        atomic_init(&v->state, DRIVE_MISSING);
        if (!v->path) {
            abort();
        }
    }
    int rc = open_found(d, f, err);
    free(f);
    if (rc < 0) {
        drives_close(d);
        return rc;
    }
    *ret = d;
    return 0;
}

static void close_fd(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

void drives_close(struct drives *d)
{
    if (!d) {
        return;
    }
    for (unsigned i = 0; i < d->n; i++) {
        struct drive *v = &d->v[i];
        lane_free(v->lane);
        lane_free(v->back_lane);
        for (unsigned k = 0; k < DRIVE_DIR_N; k++) {
            close_fd(atomic_load(&v->dirs[k]));
        }
        for (unsigned k = 0; k < 256; k++) {
            close_fd(atomic_load(&v->data_dirs[k]));
        }
        free(v->path);
    }
    for (size_t i = 0; i < d->old_lanes.n; i++) {
        lane_free(d->old_lanes.v[i]);
    }
    for (size_t i = 0; i < d->old_fds.n; i++) {
        close(d->old_fds.v[i]);
    }
    vec_free(&d->old_lanes);
    vec_free(&d->old_fds);
    pthread_mutex_destroy(&d->lock);
    pthread_mutex_destroy(&d->persist);
    free(d);
}
