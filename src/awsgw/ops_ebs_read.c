/* The EBS direct APIs: ListSnapshotBlocks, ListChangedBlocks, GetSnapshotBlock. */
#include "awsgw/ops.h"

#include "awsgw/ebs_direct.h"

#include <errno.h>

#define LINEAGE_MAX 1000u

static struct str owner_of(const struct view_entry *e)
{
    return e ? REC(snapshot, e)->account : STR("");
}

/* ---- pages ---- */

struct page {
    uint64_t from, max;
};

static int page_begin(struct aws_call *call, struct ebs_token_of *of, struct opt_i64 max,
                      struct opt_i64 start, struct str token, struct page *ret, struct err *err)
{
    *ret = (struct page){.from = start.is_set ? (uint64_t)start.v : 0,
                         .max = max.is_set ? (uint64_t)max.v : EBS_MAX_BLOCKS};
    if (!str_is_set(token)) {
        return 0;
    }
    if (!ebs_page_check(call, of, token)) {
        return ebs_invalid(err, "INVALID_PAGE_TOKEN", "The token of the page is not valid.");
    }
    ret->from = of->block;
    return 0;
}

/* Asks for a page; '*ret' lives until the caller frees it. */
static int ask_page(struct aws_call *call, const char *method, const struct view_entry *a,
                    const struct view_entry *b, const struct page *page, struct json **ret,
                    struct err *err)
{
    struct rpc_reply reply = {.payload = NULL};
    struct jw w;
    AUTO_BUF args;
    buf_init(&args, 1024);
    jw_init(&w, &args);
    jw_obj(&w, NULL);
    jw_str(&w, "account", owner_of(a));
    jw_str(&w, "snapshot_id", a ? REC(snapshot, a)->id : STR(""));
    if (b) {
        jw_str(&w, "other_account", owner_of(b));
        jw_str(&w, "other_id", REC(snapshot, b)->id);
    }
    jw_u64(&w, "from", page->from);
    jw_u64(&w, "max", page->max);
    jw_obj_end(&w);
    int r = ebs_ask(call, method, buf_str(&args), NULL, &reply, err);
    if (r < 0) {
        return r;
    }
    r = json_parse(str_n(reply.payload, reply.n), ret, NULL);
    rpc_reply_done(&reply);
    return r < 0 ? fail(err, -EIO, "InternalError", "the block service answers no JSON") : 0;
}

static struct str next_token(const struct aws_call *call, const struct json *j,
                             struct ebs_token_of *of)
{
    if (!json_get(j, "next")) {
        return STR_NONE;
    }
    of->block = json_get_u64(j, "next", 0);
    return ebs_token_make(call, of, EBS_PAGE_LIFE_NS);
}

static struct str block_token(const struct aws_call *call, struct str id, uint64_t block)
{
    const struct ebs_token_of of = {.what = "block", .snapshot = id, .block = block};
    return ebs_token_make(call, &of, EBS_TOKEN_LIFE_NS);
}

static struct opt_time expiry(const struct aws_call *call)
{
    return some_time((call->now_ns + EBS_TOKEN_LIFE_NS) / NS_PER_S * NS_PER_S);
}

int ebs_list_snapshot_blocks(struct aws_call *call, const void *input, void *output,
                             struct err *err)
{
    const struct ebs_list_snapshot_blocks_request *in = input;
    struct ebs_list_snapshot_blocks_response *out = output;
    struct ebs_token_of of = {.what = "ListSnapshotBlocks", .snapshot = in->snapshot_id};
    struct page page;
    AUTO(json_freep) struct json *j = NULL;
    const struct view_entry *e = ebs_find_readable(call, in->snapshot_id, err);
    if (!e) {
        return err->code;
    }
    int r = page_begin(call, &of, in->max_results, in->starting_block_index, in->next_token,
                       &page, err);
    if (r < 0 || (r = ask_page(call, "block.list", e, NULL, &page, &j, err)) < 0) {
        return r;
    }
    const struct json *blocks = json_get(j, "blocks");
    AWS_LIST_MAKE(call->arena, &out->blocks, json_len(blocks));
    for (size_t i = 0; i < out->blocks.n; i++) {
        uint64_t block = (uint64_t)json_i64(json_at(blocks, i), 0);
        out->blocks.v[i].block_index = some_i64((int64_t)block);
        out->blocks.v[i].block_token = block_token(call, in->snapshot_id, block);
    }
    out->volume_size = some_i64((int64_t)REC(snapshot, e)->size_gib);
    out->block_size = some_i64(EBS_BLOCK);
    out->expiry_time = expiry(call);
    out->next_token = next_token(call, j, &of);
    return 0;
}

/* ---- changed blocks ---- */

static const struct snapshot *parent_of(struct aws_call *call, const struct snapshot *s)
{
    struct str account = s->from_account.n ? s->from_account : s->account;
    return s->from_id.n ? REC(snapshot, store_spec(gw_of(call), call->arena, "snapshot",
                                                   account, s->from_id))
                        : NULL;
}

/* The first of those that it was made from, one by one, that is still known. */
static const struct snapshot *origin(struct aws_call *call, const struct snapshot *s)
{
    for (unsigned i = 0; i < LINEAGE_MAX; i++) {
        const struct snapshot *p = parent_of(call, s);
        if (!p) {
            break;
        }
        s = p;
    }
    return s;
}

static bool is_volume_same(const struct snapshot *a, const struct snapshot *b)
{
    return a->volume_id.n && !str_eqc(a->volume_id, SNAPSHOT_NO_VOLUME) &&
           str_eq(a->volume_id, b->volume_id);
}

static bool are_related(struct aws_call *call, const struct snapshot *a,
                        const struct snapshot *b)
{
    const struct snapshot *oa = origin(call, a), *ob = origin(call, b);
    return is_volume_same(a, b) || str_eq(oa->id, ob->id) || is_volume_same(oa, ob) ||
           (oa->from_id.n && str_eq(oa->from_id, ob->from_id));
}

static void changed_out(struct aws_call *call, const struct json *row,
                        const struct ebs_list_changed_blocks_request *in,
                        struct ebs_changed_block *out)
{
    uint64_t block = (uint64_t)json_i64(json_at(row, 0), 0);
    out->block_index = some_i64((int64_t)block);
    if (json_bool(json_at(row, 1), false)) {
        out->first_block_token = block_token(call, in->first_snapshot_id, block);
    }
    if (json_bool(json_at(row, 2), false)) {
        out->second_block_token = block_token(call, in->second_snapshot_id, block);
    }
}

int ebs_list_changed_blocks(struct aws_call *call, const void *input, void *output,
                            struct err *err)
{
    const struct ebs_list_changed_blocks_request *in = input;
    struct ebs_list_changed_blocks_response *out = output;
    struct ebs_token_of of = {.what = "ListChangedBlocks",
                              .snapshot = in->second_snapshot_id,
                              .other = in->first_snapshot_id};
    struct page page;
    AUTO(json_freep) struct json *j = NULL;
    bool has_first = str_is_set(in->first_snapshot_id);
    const struct view_entry *b = ebs_find_readable(call, in->second_snapshot_id, err);
    const struct view_entry *a =
        b && has_first ? ebs_find_readable(call, in->first_snapshot_id, err) : NULL;
    if (!b || (has_first && !a)) {
        return err->code;
    }
    if (a && !are_related(call, REC(snapshot, a), REC(snapshot, b))) {
        return ebs_invalid(err, "UNRELATED_SNAPSHOTS",
                           "The snapshots are not of one volume, nor made from each other.");
    }
    int r = page_begin(call, &of, in->max_results, in->starting_block_index, in->next_token,
                       &page, err);
    if (r < 0 || (r = ask_page(call, "block.changed", a, b, &page, &j, err)) < 0) {
        return r;
    }
    const struct json *blocks = json_get(j, "blocks");
    AWS_LIST_MAKE(call->arena, &out->changed_blocks, json_len(blocks));
    for (size_t i = 0; i < out->changed_blocks.n; i++) {
        changed_out(call, json_at(blocks, i), in, &out->changed_blocks.v[i]);
    }
    out->volume_size = some_i64((int64_t)REC(snapshot, b)->size_gib);
    out->block_size = some_i64(EBS_BLOCK);
    out->expiry_time = expiry(call);
    out->next_token = next_token(call, j, &of);
    return 0;
}

/* ---- one block ---- */

static int read_block(struct aws_call *call, struct rpc_reply *reply, struct str *ret,
                      struct str *ret_sum, struct err *err)
{
    AUTO(json_freep) struct json *j = NULL;
    char *p = arena_alloc(call->arena, EBS_BLOCK);
    if (!p) {
        return fail(err, -ENOMEM, "InternalError", "no memory for a block");
    }
    if (reply->n_fds != 1 || pread(reply->fds[0], p, EBS_BLOCK, 0) != (ssize_t)EBS_BLOCK ||
        json_parse(str_n(reply->payload, reply->n), &j, NULL) < 0) {
        return fail(err, -EIO, "InternalError", "the block service gives no block");
    }
    *ret = str_n(p, EBS_BLOCK);
    *ret_sum = arena_str_dup(call->arena, json_get_str(j, "checksum"));
    return 0;
}

int ebs_get_snapshot_block(struct aws_call *call, const void *input, void *output,
                           struct err *err)
{
    const struct ebs_get_snapshot_block_request *in = input;
    struct ebs_get_snapshot_block_response *out = output;
    struct rpc_reply reply = {.payload = NULL};
    struct jw w;
    AUTO_BUF args;
    buf_init(&args, 1024);
    const struct view_entry *e = ebs_find_readable(call, in->snapshot_id, err);
    if (!e) {
        return err->code;
    }
    const struct ebs_token_of of = {
        .what = "block", .snapshot = in->snapshot_id, .block = (uint64_t)in->block_index.v};
    if (!ebs_token_check(call, &of, in->block_token)) {
        return ebs_invalid(err, "INVALID_BLOCK_TOKEN",
                           "The token is not that of the block, or it has expired.");
    }
    jw_init(&w, &args);
    jw_obj(&w, NULL);
    jw_str(&w, "account", owner_of(e));
    jw_str(&w, "snapshot_id", in->snapshot_id);
    jw_u64(&w, "block", of.block);
    jw_obj_end(&w);
    int r = ebs_ask(call, "block.get", buf_str(&args), NULL, &reply, err);
    if (r < 0) {
        return r;
    }
    r = read_block(call, &reply, &out->block_data, &out->checksum, err);
    rpc_reply_done(&reply);
    out->data_length = some_i64(EBS_BLOCK);
    out->checksum_algorithm = STR("SHA256");
    return r;
}
