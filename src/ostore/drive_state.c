#include "ostore/drive_int.h"

#include "base/log.h"
#include "base/rand.h"
#include "base/time.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

LOG_MODULE("ostore.drive");

static bool is_writable(enum drive_state s)
{
    return s == DRIVE_OK || s == DRIVE_HEALING;
}

struct lane *drives_lane(struct drives *d, unsigned idx, bool is_back)
{
    pthread_mutex_lock(&d->lock);
    struct lane *l = is_back ? d->v[idx].back_lane : d->v[idx].lane;
    pthread_mutex_unlock(&d->lock);
    return l;
}

unsigned drives_epoch(const struct drives *d, unsigned idx)
{
    return atomic_load(&d->v[idx].epoch);
}

uint64_t drives_stall_ns(const struct drives *d)
{
    return d->stall_ns;
}

void drives_set_member(struct drives *d, unsigned idx, enum member_state state)
{
    d->table.generation++;
    d->table.v[idx].state = state;
    d->table.v[idx].since = d->table.generation;
    atomic_store(&d->is_unsettled, true);
}

/* The drive is given up in memory; returns whether it was in use until now. */
static bool mark_faulted(struct drives *d, unsigned idx, int rc, const char *what)
{
    pthread_mutex_lock(&d->lock);
    struct drive *v = &d->v[idx];
    bool is_first = is_writable(atomic_load(&v->state));
    if (is_first) {
        atomic_store(&v->state, DRIVE_FAULTED);
        char text[128] = "";
        (void)snprintf(v->why, sizeof(v->why), "%s: %s", what,
                       strerror_r(-rc, text, sizeof(text)));
        drives_set_member(d, idx, MEMBER_FAULTED);
        log_error("drive.faulted", KV_CSTR("path", v->path), KV_CSTR("why", v->why));
        if (rc == -ETIMEDOUT && v->lane) {
            lane_give_up(v->lane);
            lane_give_up(v->back_lane);
        }
    }
    pthread_mutex_unlock(&d->lock);
    return is_first;
}

struct write_job {
    struct lane_job job;
    struct fault_fs *fs;
    int root;
    struct drive_table table;
};

static int write_table(struct lane_job *j)
{
    struct write_job *w = CONTAINER_OF(j, struct write_job, job);
    return drive_table_write(w->fs, w->root, &w->table);
}

static void free_write_job(struct lane_job *j)
{
    free(CONTAINER_OF(j, struct write_job, job));
}

/* One turn: every drive that may be written gets the table as it is now. A failure but for -ENOSPC:
 * the table has changed. */
static int persist_once(struct drives *d)
{
    struct write_job *jobs[DRIVES_MAX] = {0};
    pthread_mutex_lock(&d->lock);
    uint64_t generation = d->table.generation;
    for (unsigned i = 0; i < d->n; i++) {
        if (!is_writable(atomic_load(&d->v[i].state)) || !d->v[i].lane) {
            continue;
        }
        struct write_job *w = calloc(1, sizeof(*w));
        if (!w) {
            abort();
        }
        lane_job_init(&w->job, write_table, free_write_job);
        w->fs = d->fs;
        w->root = d->v[i].root;
        w->table = d->table;
        w->table.place = i;
        jobs[i] = w;
        lane_post(d->v[i].lane, &w->job);
    }
    pthread_mutex_unlock(&d->lock);
    int ret = 0;
    uint64_t deadline = time_mono_ns() + d->stall_ns;
    for (unsigned i = 0; i < d->n; i++) {
        if (!jobs[i]) {
            continue;
        }
        int rc = lane_wait(&jobs[i]->job, deadline);
        lane_job_unref(&jobs[i]->job);
        if (rc == -ENOSPC || rc == -EDQUOT) {
            drives_note_full(d, i);
            ret = ret == 0 ? -ENOSPC : ret;
        } else if (rc < 0) {
            ret = rc;
            (void)mark_faulted(d, i, rc, "writing " DRIVE_FILE);
        }
    }
    pthread_mutex_lock(&d->lock);
    d->persisted = ret == 0 || ret == -ENOSPC ? generation : d->persisted;
    pthread_mutex_unlock(&d->lock);
    return ret;
}

int drives_persist(struct drives *d)
{
    int rc = 0;
    pthread_mutex_lock(&d->persist);
    /* Each turn that fails takes a drive away, so this ends. */
    for (unsigned turn = 0; turn <= d->n + 1; turn++) {
        pthread_mutex_lock(&d->lock);
        bool is_done = d->persisted == d->table.generation;
        if (is_done) {
            atomic_store(&d->is_unsettled, false);
        }
        pthread_mutex_unlock(&d->lock);
        if (is_done) {
            break;
        }
        rc = persist_once(d);
    }
    pthread_mutex_unlock(&d->persist);
    return rc == -ENOSPC ? rc : 0;
}

void drives_fault(struct drives *d, unsigned idx, int rc, const char *what)
{
    if (rc == -ENOSPC || rc == -EDQUOT) {
        drives_note_full(d, idx);
        return;
    }
    if (mark_faulted(d, idx, rc, what)) {
        (void)drives_persist(d);
    }
}

const char *const drive_dir_names[DRIVE_DIR_N] = {
    [DRIVE_ROOT] = ".", [DRIVE_LOG] = "log", [DRIVE_DATA] = "data", [DRIVE_INDEX] = "index"};

int drive_make_dirs(struct fault_fs *fs, int root, int dirs[DRIVE_DIR_N])
{
    for (unsigned i = 0; i < DRIVE_DIR_N; i++) {
        dirs[i] = -1;
    }
    for (unsigned i = DRIVE_LOG; i <= DRIVE_DATA; i++) {
        int rc = fault_mkdir(fs, root, drive_dir_names[i], 0700);
        if (rc < 0 && rc != -EEXIST) {
            return rc;
        }
        dirs[i] = fault_open_dir(fs, root, drive_dir_names[i]);
        if (dirs[i] < 0) {
            return dirs[i];
        }
    }
    /* Also when they were there: a start that was cut short may not have synced them. */
    return fault_sync_dir(fs, root);
}

/* --- replacing --- */

static int take_folder(struct drives *d, unsigned idx, int *ret, struct err *err)
{
    const char *path = d->v[idx].path;
    AUTO_FD root = fault_open_root(d->fs, path);
    if (root < 0) {
        return fail(err, root, "DriveMissing", "%s cannot be opened (%d)", path, root);
    }
    bool is_empty = false;
    int rc = drive_is_empty(root, &is_empty);
    if (rc < 0) {
        return fail(err, rc, "DriveMissing", "%s cannot be read (%d)", path, rc);
    }
    if (!is_empty) {
        return fail(err, -ENOTEMPTY, "ForeignDrive", "%s is not empty", path);
    }
    if (d->v[idx].root >= 0) {
        (void)flock(d->v[idx].root,
                    LOCK_UN); /* taken when the folder was looked at: it may be this one */
    }
    if (flock(root, LOCK_EX | LOCK_NB) < 0) {
        return fail(err, -EBUSY, "DriveBusy", "%s is in use by another process", path);
    }
    *ret = steal_fd(&root);
    return 0;
}

/* Others may still use the old descriptors: they are closed at the end. With 'lock' held. */
static void retire(struct drives *d, unsigned idx)
{
    struct drive *v = &d->v[idx];
    for (unsigned i = DRIVE_ROOT; i < DRIVE_DIR_N; i++) {
        int fd = atomic_exchange(&v->dirs[i], -1);
        if (fd >= 0) {
            vec_push(&d->old_fds, fd);
        }
    }
    for (unsigned i = 0; i < 256; i++) {
        int fd = atomic_exchange(&v->data_dirs[i], -1);
        if (fd >= 0) {
            vec_push(&d->old_fds, fd);
        }
    }
    if (v->lane) {
        vec_push(&d->old_lanes, v->lane);
        vec_push(&d->old_lanes, v->back_lane);
    }
    v->root = -1;
    v->lane = v->back_lane = NULL;
}

/* Writes the new drive.json: first on the new drive, because a cut would otherwise leave a set
 * that knows a drive which is empty. */
struct take_job {
    struct lane_job job;
    struct fault_fs *fs;
    int root, dirs[DRIVE_DIR_N];
    struct drive_table table;
};

static int take_run(struct lane_job *j)
{
    struct take_job *t = CONTAINER_OF(j, struct take_job, job);
    int rc = drive_table_write(t->fs, t->root, &t->table);
    return rc == 0 ? drive_make_dirs(t->fs, t->root, t->dirs) : rc;
}

static void take_free(struct lane_job *j)
{
    struct take_job *t = CONTAINER_OF(j, struct take_job, job);
    for (unsigned i = 0; i < DRIVE_DIR_N; i++) {
        if (t->dirs[i] >= 0) {
            close(t->dirs[i]);
        }
    }
    if (t->root >= 0) {
        close(t->root);
    }
    free(t);
}

/* Takes 'root'. */
static struct take_job *take_job_new(struct drives *d, unsigned idx, int root)
{
    struct take_job *t = calloc(1, sizeof(*t));
    if (!t) {
        abort();
    }
    lane_job_init(&t->job, take_run, take_free);
    t->fs = d->fs;
    t->root = root;
    for (unsigned i = 0; i < DRIVE_DIR_N; i++) {
        t->dirs[i] = -1;
    }
    pthread_mutex_lock(&d->lock);
    t->table = d->table;
    pthread_mutex_unlock(&d->lock);
    t->table.generation++;
    rand_bytes(t->table.v[idx].id, DRIVE_ID_SIZE);
    t->table.v[idx].state = MEMBER_HEALING;
    t->table.v[idx].since = t->table.generation;
    t->table.place = idx;
    return t;
}

int drives_replace(struct drives *d, unsigned idx, struct err *err)
{
    if (idx >= d->n) {
        return fail(err, -EINVAL, "NoSuchDrive", "there is no drive %u", idx);
    }
    struct drive *v = &d->v[idx];
    if (is_writable(atomic_load(&v->state))) {
        return fail(err, -EBUSY, "DriveInUse", "%s is well", v->path);
    }
    AUTO_FD root = -1;
    int rc = take_folder(d, idx, &root, err);
    if (rc < 0) {
        return rc;
    }
    struct lane *lane = NULL, *back_lane = NULL;
    if (lane_new(&lane) < 0 || lane_new(&back_lane) < 0) {
        lane_free(lane);
        return fail(err, -EAGAIN, "ReplaceFailed", "no thread for %s", v->path);
    }
    pthread_mutex_lock(&d->persist);
    struct take_job *t = take_job_new(d, idx, steal_fd(&root));
    lane_post(lane, &t->job);
    rc = lane_wait(&t->job, time_mono_ns() + d->stall_ns);
    pthread_mutex_lock(&d->lock);
    /* Whatever came of it, the folder may have the new id: it is a member from here on. */
    d->table.v[idx] = t->table.v[idx];
    drives_set_member(d, idx, rc == 0 ? MEMBER_HEALING : MEMBER_FAULTED);
    if (rc == 0) {
        retire(d, idx);
        v->root = steal_fd(&t->root);
        for (unsigned i = DRIVE_LOG; i < DRIVE_DIR_N; i++) {
            atomic_store(&v->dirs[i], steal_fd(&t->dirs[i]));
        }
        atomic_store(&v->dirs[DRIVE_ROOT], v->root);
        v->lane = steal(&lane);
        v->back_lane = steal(&back_lane);
        v->why[0] = 0;
        v->space_ns = v->full_until_ns = 0;
        atomic_store(&v->read_ns, 0);
        atomic_fetch_add(&v->epoch,
                         1); /* before it may be written: nobody takes it for the old one */
        atomic_store(&v->state, DRIVE_HEALING);
    } else {
        vec_push(&d->old_lanes, steal(&lane));
        if (rc == -ETIMEDOUT) {
            lane_give_up(d->old_lanes.v[d->old_lanes.n - 1]);
        }
    }
    pthread_mutex_unlock(&d->lock);
    pthread_mutex_unlock(&d->persist);
    lane_free(back_lane);
    lane_job_unref(&t->job);
    (void)drives_persist(d);
    if (rc < 0) {
        return fail(err, rc, "ReplaceFailed", "%s cannot be written (%d)", v->path, rc);
    }
    return is_writable(atomic_load(&v->state))
               ? 0
               : fail(err, -EIO, "ReplaceFailed", "%s failed", v->path);
}

int drives_healed(struct drives *d, unsigned idx, struct err *err)
{
    if (idx >= d->n) {
        return fail(err, -EINVAL, "NoSuchDrive", "there is no drive %u", idx);
    }
    pthread_mutex_lock(&d->lock);
    enum drive_state s = atomic_load(&d->v[idx].state);
    if (s == DRIVE_HEALING) {
        drives_set_member(d, idx, MEMBER_OK);
        atomic_store(&d->v[idx].state, DRIVE_OK);
    }
    pthread_mutex_unlock(&d->lock);
    if (s != DRIVE_HEALING && s != DRIVE_OK) {
        return fail(err, -EBUSY, "DriveMissing", "%s is not healing", d->v[idx].path);
    }
    (void)drives_persist(d);
    return is_writable(atomic_load(&d->v[idx].state))
               ? 0
               : fail(err, -EIO, "DriveFaulted", "%s failed", d->v[idx].path);
}
