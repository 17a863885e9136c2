#include "ostore/oindex.h"

#include "ostore/oindex_db.h"
#include "ostore/oindex_int.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct oindex_batch {
    rocksdb_writebatch_t *b;
};

struct oindex_iter {
    rocksdb_iterator_t *it;
    rocksdb_readoptions_t *opts;
    char *end; /* RocksDB keeps no copy of the bound */
};

/* Takes RocksDB's text and makes an error of it. */
int oindex_failed(char *text, struct err *err, const char *what)
{
    int rc;
    if (strstr(text, "Corruption")) {
        rc = fail(err, -EUCLEAN, "IndexDamaged", "index, %s: %s", what, text);
    } else if (strstr(text, "No space left")) {
        rc = fail(err, -ENOSPC, "InsufficientStorage", "index, %s: %s", what, text);
    } else {
        rc = fail(err, -EIO, "IndexFailed", "index, %s: %s", what, text);
    }
    rocksdb_free(text);
    return rc;
}

static rocksdb_options_t *make_options(struct oindex *x, const struct oindex_opts *o)
{
    size_t write_buffer = o->write_buffer ? o->write_buffer : (size_t)32 << 20;
    x->cache = rocksdb_cache_create_lru(o->cache_size ? o->cache_size : (size_t)64 << 20);
    rocksdb_block_based_table_options_t *t = rocksdb_block_based_options_create();
    rocksdb_block_based_options_set_block_cache(t, x->cache);
    rocksdb_block_based_options_set_filter_policy(t,
                                                  rocksdb_filterpolicy_create_bloom_full(10));
    rocksdb_block_based_options_set_format_version(t, 5);
    rocksdb_options_t *p = rocksdb_options_create();
    rocksdb_options_set_block_based_table_factory(p, t);
    rocksdb_block_based_options_destroy(t);
    rocksdb_options_set_create_if_missing(p, 1);
    rocksdb_options_set_compression(p, rocksdb_lz4_compression);
    rocksdb_options_set_write_buffer_size(p, write_buffer);
    rocksdb_options_set_max_write_buffer_number(p, 4);
    rocksdb_options_set_memtable_whole_key_filtering(p, 1);
    rocksdb_options_set_memtable_prefix_bloom_size_ratio(p, 0.05);
    rocksdb_options_set_level_compaction_dynamic_level_bytes(p, 1);
    rocksdb_options_set_max_background_jobs(p, 2);
    rocksdb_options_set_bytes_per_sync(p, 1 << 20);
    rocksdb_options_set_skip_stats_update_on_db_open(p, 1);
    rocksdb_options_set_info_log_level(p, 3 /* errors */);
    rocksdb_options_set_keep_log_file_num(p, 2);
    rocksdb_options_set_max_log_file_size(p, (size_t)1 << 20);
    (void)snprintf(x->write_buffer, sizeof(x->write_buffer), "%zu", write_buffer);
    return p;
}

int oindex_open(const struct oindex_opts *o, struct oindex **ret, struct err *err)
{
    struct oindex *x = calloc(1, sizeof(*x));
    if (!x) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for the index");
    }
    x->opts = make_options(x, o);
    x->read = rocksdb_readoptions_create();
    x->read_nowait = rocksdb_readoptions_create();
    rocksdb_readoptions_set_read_tier(x->read_nowait, 1 /* what is in memory */);
    x->write = rocksdb_writeoptions_create();
    rocksdb_writeoptions_disable_WAL(x->write, 1);
    (void)snprintf(x->path, sizeof(x->path), "%s", o->path);
    char *text = NULL;
    x->db = rocksdb_open(x->opts, o->path, &text);
    if (text) {
        oindex_close(x);
        return oindex_failed(text, err, "open");
    }
    *ret = x;
    return 0;
}

void oindex_close(struct oindex *x)
{
    if (!x) {
        return;
    }
    if (x->db) {
        int rc = oindex_flush(x, NULL);
        (void)rc; /* what is not flushed is replayed */
        rocksdb_close(x->db);
    }
    rocksdb_writeoptions_destroy(x->write);
    rocksdb_readoptions_destroy(x->read);
    rocksdb_readoptions_destroy(x->read_nowait);
    rocksdb_options_destroy(x->opts);
    rocksdb_cache_destroy(x->cache);
    free(x);
}

int oindex_destroy(const char *path, struct err *err)
{
    rocksdb_options_t *o = rocksdb_options_create();
    char *text = NULL;
    rocksdb_destroy_db(o, path, &text);
    rocksdb_options_destroy(o);
    return text ? oindex_failed(text, err, "remove") : 0;
}

int oindex_flush(struct oindex *x, struct err *err)
{
    rocksdb_flushoptions_t *o = rocksdb_flushoptions_create();
    rocksdb_flushoptions_set_wait(o, 1);
    char *text = NULL;
    rocksdb_flush(x->db, o, &text);
    rocksdb_flushoptions_destroy(o);
    return text ? oindex_failed(text, err, "flush") : 0;
}

int oindex_bulk(struct oindex *x, bool is_bulk, struct err *err)
{
    const char *const names[] = {"write_buffer_size", "disable_auto_compactions",
                                 "level0_slowdown_writes_trigger",
                                 "level0_stop_writes_trigger"};
    const char *const bulk[] = {"134217728", "true", "1000000", "1000000"};
    const char *const usual[] = {x->write_buffer, "false", "20", "36"};
    char *text = NULL;
    rocksdb_set_options(x->db, ARRAY_LEN(names), names, is_bulk ? bulk : usual, &text);
    return text ? oindex_failed(text, err, "options") : 0;
}

int oindex_get(struct oindex *x, struct str key, bool is_nowait, struct arena *a,
               struct str *ret, struct err *err)
{
    char *text = NULL;
    rocksdb_pinnableslice_t *v =
        rocksdb_get_pinned(x->db, is_nowait ? x->read_nowait : x->read, key.p, key.n, &text);
    if (text) {
        if (is_nowait && strstr(text, "ncomplete")) {
            rocksdb_free(text);
            return -EAGAIN;
        }
        return oindex_failed(text, err, "get");
    }
    if (!v) {
        return -ENOENT;
    }
    size_t n = 0;
    const char *p = rocksdb_pinnableslice_value(v, &n);
    *ret = arena_str_dup(a, str_n(p, n));
    rocksdb_pinnableslice_destroy(v);
    return ret->p ? 0 : fail(err, -ENOMEM, "RequestTooLarge", "a record needs too much memory");
}

struct oindex_batch *oindex_batch_new(void)
{
    struct oindex_batch *b = calloc(1, sizeof(*b));
    if (!b) {
        abort();
    }
    b->b = rocksdb_writebatch_create();
    return b;
}

void oindex_batch_free(struct oindex_batch *b)
{
    if (b) {
        rocksdb_writebatch_destroy(b->b);
        free(b);
    }
}

void oindex_batch_clear(struct oindex_batch *b)
{
    rocksdb_writebatch_clear(b->b);
}

void oindex_put(struct oindex_batch *b, struct str key, struct str value)
{
    rocksdb_writebatch_put(b->b, key.p, key.n, value.p, value.n);
}

void oindex_put2(struct oindex_batch *b, struct str key, struct str first, struct str second)
{
    const char *k = key.p, *const v[] = {first.p, second.p};
    const size_t n[] = {first.n, second.n};
    rocksdb_writebatch_putv(b->b, 1, &k, &key.n, 2, v, n);
}

void oindex_del(struct oindex_batch *b, struct str key)
{
    rocksdb_writebatch_delete(b->b, key.p, key.n);
}

int oindex_apply(struct oindex *x, struct oindex_batch *b, struct err *err)
{
    char *text = NULL;
    rocksdb_write(x->db, x->write, b->b, &text);
    return text ? oindex_failed(text, err, "write") : 0;
}

struct oindex_snap {
    struct oindex *x;
    const rocksdb_snapshot_t *s;
};

int oindex_snap_open(struct oindex *x, struct oindex_snap **ret)
{
    struct oindex_snap *s = calloc(1, sizeof(*s));
    if (!s) {
        return -ENOMEM;
    }
    s->x = x;
    s->s = rocksdb_create_snapshot(x->db);
    *ret = s;
    return 0;
}

void oindex_snap_close(struct oindex_snap *s)
{
    if (s) {
        rocksdb_release_snapshot(s->x->db, s->s);
        free(s);
    }
}

static int iter_open(struct oindex *x, const rocksdb_snapshot_t *snap, struct str end,
                     struct oindex_iter **ret)
{
    struct oindex_iter *it = calloc(1, sizeof(*it));
    char *copy = end.n ? malloc(end.n) : NULL;
    if (!it || (end.n && !copy)) {
        free(it);
        free(copy);
        return -ENOMEM;
    }
    it->opts = rocksdb_readoptions_create();
    if (snap) {
        rocksdb_readoptions_set_snapshot(it->opts, snap);
    }
    if (copy) {
        memcpy(copy, end.p, end.n);
        it->end = copy;
        rocksdb_readoptions_set_iterate_upper_bound(it->opts, it->end, end.n);
    }
    it->it = rocksdb_create_iterator(x->db, it->opts);
    *ret = it;
    return 0;
}

int oindex_iter_open(struct oindex *x, struct str end, struct oindex_iter **ret)
{
    return iter_open(x, NULL, end, ret);
}

int oindex_iter_open_at(struct oindex_snap *s, struct str end, struct oindex_iter **ret)
{
    return iter_open(s->x, s->s, end, ret);
}

void oindex_iter_close(struct oindex_iter *it)
{
    if (it) {
        rocksdb_iter_destroy(it->it);
        rocksdb_readoptions_destroy(it->opts);
        free(it->end);
        free(it);
    }
}

bool oindex_seek(struct oindex_iter *it, struct str first)
{
    rocksdb_iter_seek(it->it, first.p, first.n);
    return rocksdb_iter_valid(it->it);
}

bool oindex_next(struct oindex_iter *it)
{
    rocksdb_iter_next(it->it);
    return rocksdb_iter_valid(it->it);
}

struct str oindex_key(const struct oindex_iter *it)
{
    size_t n = 0;
    const char *p = rocksdb_iter_key(it->it, &n);
    return str_n(p, n);
}

struct str oindex_value(const struct oindex_iter *it)
{
    size_t n = 0;
    const char *p = rocksdb_iter_value(it->it, &n);
    return str_n(p, n);
}

int oindex_iter_error(const struct oindex_iter *it, struct err *err)
{
    char *text = NULL;
    rocksdb_iter_get_error(it->it, &text);
    return text ? oindex_failed(text, err, "walk") : 0;
}

static uint64_t property(struct oindex *x, const char *name)
{
    uint64_t v = 0;
    return rocksdb_property_int(x->db, name, &v) == 0 ? v : 0;
}

void oindex_stats(struct oindex *x, struct oindex_stats *ret)
{
    *ret = (struct oindex_stats){
        .n_keys_about = property(x, "rocksdb.estimate-num-keys"),
        .disk_bytes = property(x, "rocksdb.total-sst-files-size"),
        .mem_bytes =
            property(x, "rocksdb.cur-size-all-mem-tables") + rocksdb_cache_get_usage(x->cache),
    };
}
