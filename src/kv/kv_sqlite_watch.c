#include "kv/kv_sqlite_int.h"

#include <errno.h>

/* A watch is a position, not a queue: what it has missed is read from history. So a slow one
 * costs no memory, and one that is further behind than history gets the whole prefix again.
 *
 *      NEW ──RESET──> LISTING ──last page, SYNC──> LIVE
 *       ^                                           │
 *       └────────── history was compacted ──────────┘
 *
 * While listing, everything about the keys up to 'cursor' is known as of 'pos': each step first
 * brings those keys to the revision of its read transaction, then reads the next page at that
 * revision. */

#define STEP_ARENA (16u << 20) /* a page, one revision more, and what doubling arrays waste */

struct step {
    struct arena *a;
    struct kv_event *v;
    size_t n, cap, size;
    uint64_t pos;
    bool has_cursor, is_listed; /* new cursor; the list is complete */
    struct str cursor;
    bool has_more;
};

static int add(struct step *s, const struct kv_event *ev, struct err *err)
{
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 32;
        struct kv_event *v = arena_array(s->a, cap, sizeof(*v));
        if (!v) {
            return fail(err, -ENOMEM, "OutOfMemory", "no memory for the events of a watch");
        }
        if (s->n) {
            memcpy(v, s->v, s->n * sizeof(*v));
        }
        s->v = v;
        s->cap = cap;
    }
    s->v[s->n++] = *ev;
    s->size += ev->item.key.n + ev->item.value.n;
    return 0;
}

static int add_mark(struct step *s, int type, uint64_t rev, struct err *err)
{
    struct kv_event ev = {.item = {.mod_rev = rev}};
    ev.type = type == KV_EVENT_SYNC ? KV_EVENT_SYNC : KV_EVENT_RESET;
    return add(s, &ev, err);
}

static int add_row(struct step *s, sqlite3_stmt *st, struct err *err)
{
    bool is_put = sqlite3_column_type(st, 2) != SQLITE_NULL;
    struct kv_event ev = {.type = is_put ? KV_EVENT_PUT : KV_EVENT_DELETE,
                          .item = {.key = arena_str_dup(s->a, db_col_str(st, 1)),
                                   .value = STR(""),
                                   .create_rev = db_col_u64(st, 3),
                                   .mod_rev = db_col_u64(st, 0) >> 8,
                                   .lease = db_col_u64(st, 4)}};
    if (is_put) {
        ev.item.value = arena_str_dup(s->a, db_col_str(st, 2));
    }
    if (!ev.item.key.p || !ev.item.value.p) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for the events of a watch");
    }
    return add(s, &ev, err);
}

/* Events in (pos, rev], cut at the end of a revision when a page is full. */
static int add_events(struct db *db, const struct kv_watch *w, struct step *s, uint64_t rev,
                      struct err *err)
{
    sqlite3_stmt *st = db_stmt(db, DB_EVENTS, err);
    if (!st) {
        return -EIO;
    }
    db_bind_u64(st, 1, s->pos << 8 | 0xff);
    db_bind_u64(st, 2, (rev + 1) << 8);
    uint64_t last = s->pos;
    size_t n_rows = 0;
    int r = 0;
    while ((r = db_step(db, st, err)) == 1) {
        uint64_t row_rev = db_col_u64(st, 0) >> 8;
        if (row_rev != last && (s->size >= KV_PAGE_SIZE || n_rows >= 4096)) {
            s->has_more = true;
            rev = last;
            break;
        }
        last = row_rev;
        n_rows++;
        struct str key = db_col_str(st, 1);
        bool is_known = w->phase == WATCH_LIVE ||
                        (w->cursor && str_cmp(key, str_n(w->cursor, w->cursor_n)) <= 0);
        if (is_known && str_has_prefix(key, w->prefix)) {
            r = add_row(s, st, err);
            if (r < 0) {
                break;
            }
        }
    }
    sqlite3_reset(st);
    s->pos = rev;
    return r < 0 ? r : 0;
}

static int add_page(struct db *db, const struct kv_watch *w, struct step *s, struct err *err)
{
    struct kv_list list = {0};
    struct str after = w->cursor ? str_n(w->cursor, w->cursor_n) : STR_NONE;
    int r = kvs_list(db, s->a, w->prefix, after, KV_LIST_MAX, &list, err);
    for (size_t i = 0; r == 0 && i < list.n; i++) {
        struct kv_event ev = {.type = KV_EVENT_PUT, .item = list.v[i]};
        r = add(s, &ev, err);
    }
    if (r == 0 && list.n) {
        s->cursor = list.v[list.n - 1].key;
        s->has_cursor = true;
    }
    s->is_listed = !list.has_more;
    return r;
}

static int gather(struct db *db, struct kv_watch *w, struct step *s, struct err *err)
{
    uint64_t rev = 0, compact = 0;
    int r = kvs_read_revs(db, &rev, &compact, err);
    if (r < 0) {
        return r;
    }
    s->pos = w->pos;
    if (w->phase == WATCH_NEW || w->pos < compact || w->pos > rev) {
        /* Behind history, or ahead of it: the store was replaced by an older one. */
        w->phase = WATCH_LISTING;
        free(w->cursor);
        w->cursor = NULL;
        s->pos = w->pos = rev;
        r = add_mark(s, KV_EVENT_RESET, rev, err);
        w->is_reset_due = true;
    } else if (w->is_reset_due) {
        r = add_mark(s, KV_EVENT_RESET, rev, err); /* the step that began the list failed */
    }
    if (r == 0) {
        r = add_events(db, w, s, rev, err);
    }
    if (r == 0 && w->phase == WATCH_LISTING && !s->has_more) {
        r = add_page(db, w, s, err);
    }
    bool is_live = w->phase == WATCH_LIVE || s->is_listed;
    if (r == 0 && is_live && (s->pos != w->pos || !w->is_synced || s->is_listed)) {
        r = add_mark(s, KV_EVENT_SYNC, s->pos, err);
    }
    return r;
}

/* Reads the next events of a watch and hands them over. The read transaction ends first: a slow
 * user keeps no log alive. */
static int step(struct kv_sqlite *k, struct kv_watch *w, struct err *err)
{
    AUTO(arena_freep) struct arena *a = arena_new(STEP_ARENA);
    struct step s = {.a = a};
    int r = k->watch_db.h ? 0 : db_open(k->path, &k->watch_db, err);
    if (r == 0) {
        r = db_run(&k->watch_db, DB_BEGIN_READ, err);
    }
    if (r == 0) {
        r = gather(&k->watch_db, w, &s, err);
    }
    db_end(&k->watch_db);
    if (r == 0 && s.has_cursor) {
        r = watch_set_cursor(w, s.cursor);
    }
    if (r < 0) {
        if (r == -EIO) {
            db_close(&k->watch_db);
        }
        return r;
    }
    w->is_reset_due = false;
    w->pos = s.pos;
    if (s.is_listed) {
        w->phase = WATCH_LIVE;
    }
    w->is_synced = w->phase == WATCH_LIVE;
    for (size_t i = 0; i < s.n; i++) {
        watch_deliver(w, &s.v[i]);
    }
    return 0;
}

static bool is_due(const struct kv_sqlite *k, const struct kv_watch *w)
{
    return !__atomic_load_n(&w->is_paused, __ATOMIC_SEQ_CST) &&
           (w->phase != WATCH_LIVE || !w->is_synced ||
            w->pos < __atomic_load_n(&k->rev, __ATOMIC_SEQ_CST));
}

/* With the lock held: the next watch that has something to read, going round so that none
 * starves. */
static struct kv_watch *next_due(const struct kv_sqlite *k, const struct kv_watch *last)
{
    struct kv_watch *first = NULL;
    bool is_after = false;
    for (struct kv_watch *w = k->watches.head; w; w = w->next) {
        if (is_due(k, w)) {
            if (is_after) {
                return w;
            }
            first = first ? first : w;
        }
        is_after = is_after || w == last;
    }
    return first;
}

void *kvs_dispatcher(void *arg)
{
    struct kv_sqlite *k = arg;
    struct watch_set *ws = &k->watches;
    const struct kv_watch *last = NULL; /* only compared */
    pthread_setname_np(pthread_self(), "kv-watch");
    pthread_mutex_lock(&ws->mu);
    while (!ws->is_closing) {
        struct kv_watch *w = next_due(k, last);
        if (!w) {
            pthread_cond_wait(&ws->cv, &ws->mu);
            continue;
        }
        last = w;
        watch_set_begin(ws, w);
        pthread_mutex_unlock(&ws->mu);
        struct err err = ERR_INIT;
        int r = step(k, w, &err);
        pthread_mutex_lock(&ws->mu);
        watch_set_end(ws);
        if (r < 0 && !ws->is_closing) {
            /* The disk or memory failed: nothing is lost, the position stays. */
            cond_wait_until(&ws->cv, &ws->mu, time_mono_ns() + NS_PER_S);
        }
    }
    pthread_mutex_unlock(&ws->mu);
    return NULL;
}
