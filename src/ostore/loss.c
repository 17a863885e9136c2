#include "ostore/ostore_int.h"

#include "base/log.h"
#include "codec/json.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

/* What of the log is lost, and what becomes of it when somebody accepts that. */

LOG_MODULE("ostore.loss");

#define NOTE_FILE "losses.log" /* in the folder of each drive: a line for each time */
#define NOTE_MAX  ((size_t)64 << 10)

struct look {
    struct ostore *s;
    struct arena *a;
    struct ostore_loss *ret;
    VEC(struct str) what;
    VEC(struct str) names;
    /* of the segment at hand */
    uint64_t segment;
    VEC(uint64_t) seen; /* lsns, ascending */
};

static int see(void *ctx, const struct olog_rec *r, struct err *err)
{
    struct look *k = ctx;
    vec_push(&k->seen, r->lsn);
    return atomic_load(&k->s->is_closing) ? -ECANCELED : 0;
}

static bool was_seen(const struct look *k, uint64_t lsn)
{
    size_t lo = 0, hi = k->seen.n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (k->seen.v[mid] < lsn) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < k->seen.n && k->seen.v[lo] == lsn;
}

static int note_name(struct look *k, const struct ipeek *p, struct err *err)
{
    k->ret->n_objects++;
    if (k->names.n >= OSTORE_LOSS_NAMES) {
        return 0;
    }
    const struct obucket *b = buckets_now(k->s, p->bucket);
    struct str name =
        arena_fmt(k->a, "%.*s/%.*s", STR_ARG(b ? b->name : STR("?")), STR_ARG(p->key));
    obucket_unref(b);
    if (!name.p) {
        return fail(err, -ENOMEM, "RequestTooLarge", "too many names");
    }
    vec_push(&k->names, name);
    return 0;
}

/* Entries of the index whose records lie in this segment and were not seen there. */
static int look_at_index(struct look *k, char kind, struct err *err)
{
    char end[1] = {(char)(kind + 1)}, first[1] = {kind};
    struct oindex_iter *it = NULL;
    int rc = oindex_iter_open(k->s->index, str_n(end, 1), &it);
    if (rc < 0) {
        return fail(err, rc, "OutOfMemory", "no memory for the index");
    }
    for (bool is = oindex_seek(it, str_n(first, 1)); is && rc == 0; is = oindex_next(it)) {
        struct ival v;
        struct ipeek p;
        rc = ival_decode(oindex_value(it), &v, err);
        if (rc == 0 && v.segment == k->segment && index_peek(v.head, &p) == 0 &&
            !was_seen(k, v.lsn)) {
            rc = note_name(k, &p, err);
        }
    }
    rc = rc < 0 ? rc : oindex_iter_error(it, err);
    oindex_iter_close(it);
    return rc;
}

static int look_at_segment(struct look *k, const struct olog_segment *g, struct err *err)
{
    static const char kinds[] = {IX_OLD, IX_OBJECT, IX_PART};
    struct err why = ERR_INIT;
    k->segment = g->segment;
    k->seen.n = 0;
    int rc = olog_walk(k->s->log, g->segment, see, k, &why);
    if (rc == 0 || rc == -ENOENT) { /* compaction may have taken it */
        return 0;
    }
    if (rc != -EUCLEAN) {
        return fail(err, rc, why.name ? why.name : "LogFailed", "%s", why.msg);
    }
    vec_push(&k->what, arena_str_dup(k->a, str_c(why.msg)));
    for (size_t i = 0; i < sizeof(kinds); i++) {
        rc = look_at_index(k, kinds[i], err);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

int ostore_loss(struct ostore *s, struct arena *a, struct ostore_loss *ret, struct err *err)
{
    struct look k = {.s = s, .a = a, .ret = ret};
    struct olog_segment *v = NULL;
    size_t n = 0, n_damage = 0;
    *ret = (struct ostore_loss){0};
    const struct olog_damage *d = olog_damage(s->log, &n_damage);
    for (size_t i = 0; i < n_damage && !s->is_loss_settled; i++) {
        vec_push(&k.what, arena_str_dup(a, str_c(d[i].what)));
    }
    int rc = olog_segments(s->log, &v, &n);
    rc = rc < 0 ? fail(err, rc, "OutOfMemory", "no memory for segments") : 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        if (v[i].last_lsn != 0) {
            rc = look_at_segment(&k, &v[i], err);
        }
    }
    free(v);
    ret->n_what = k.what.n;
    ret->n_names = k.names.n;
    ret->what = arena_array(a, k.what.n + 1, sizeof(*ret->what));
    ret->names = arena_array(a, k.names.n + 1, sizeof(*ret->names));
    if (rc == 0 && (!ret->what || !ret->names)) {
        rc = fail(err, -ENOMEM, "RequestTooLarge", "too many names");
    }
    if (rc == 0 && k.what.n) {
        memcpy(ret->what, k.what.v, k.what.n * sizeof(*ret->what));
    }
    if (rc == 0 && k.names.n) {
        memcpy(ret->names, k.names.v, k.names.n * sizeof(*ret->names));
    }
    vec_free(&k.what);
    vec_free(&k.names);
    vec_free(&k.seen);
    return rc;
}

/* --- accepted --- */

static int write_note(struct ostore *s, unsigned drive, struct str line)
{
    int dir = drives_dir(s->drives, drive, DRIVE_ROOT);
    AUTO_FD fd = dir < 0 ? dir : fault_open(s->fs, dir, NOTE_FILE, O_WRONLY | O_CREAT, 0600);
    if (fd < 0) {
        return fd;
    }
    off_t end = lseek(fd, 0, SEEK_END);
    int rc = end < 0 ? -errno : fault_pwrite(s->fs, fd, line.p, line.n, (uint64_t)end);
    rc = rc < 0 ? rc : fault_fdatasync(s->fs, fd);
    return rc < 0 ? rc : fault_sync_dir(s->fs, dir);
}

static int write_notes(struct ostore *s, const char *who, const struct olog_damage *d, size_t n,
                       struct err *err)
{
    AUTO_BUF line;
    struct jw w;
    unsigned n_good = 0;
    int rc = 0;
    buf_init(&line, NOTE_MAX);
    jw_init(&w, &line);
    jw_obj(&w, NULL);
    jw_u64(&w, "time_ns", ostore_now(s));
    jw_cstr(&w, "accepted_by", who);
    jw_arr(&w, "lost");
    for (size_t i = 0; i < n; i++) {
        jw_cstr(&w, NULL, d[i].what);
    }
    jw_arr_end(&w);
    jw_obj_end(&w);
    buf_add_char(&line, '\n');
    for (unsigned i = 0; i < drives_n(s->drives); i++) {
        if (drives_writable(s->drives) >> i & 1) {
            int rc2 = write_note(s, i, buf_str(&line));
            n_good += rc2 == 0;
            rc = rc2 < 0 ? rc2 : rc;
        }
    }
    return n_good > 0 ? 0
                      : fail(err, rc, "WriteFailed", NOTE_FILE " cannot be written (%d)", rc);
}

int loss_settle(struct ostore *s, const char *who, struct err *err)
{
    size_t n = 0;
    const struct olog_damage *d = olog_damage(s->log, &n);
    if (n == 0) {
        return 0;
    }
    /* First what nobody may have to ask for later, then the only traces are removed. */
    int rc = write_notes(s, who, d, n, err);
    for (size_t i = 0; i < n && rc == 0; i++) {
        log_warn("loss.accepted", KV_CSTR("by", who), KV_CSTR("what", d[i].what));
        if (d[i].segment) {
            rc = compact_give_up(s->compact, d[i].segment, err);
        }
    }
    if (rc == 0) {
        pins_settle(s->pins);
        s->is_loss_settled = true;
    }
    return rc;
}
