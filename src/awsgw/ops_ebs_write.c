/* The EBS direct APIs: StartSnapshot, PutSnapshotBlock, CompleteSnapshot. */
#include "awsgw/ops.h"

#include "awsgw/ebs_direct.h"
#include "awsgw/region.h"
#include "codec/base64.h"
#include "codec/hex.h"
#include "crypto/digest.h"
#include "model/keys.h"

#include <errno.h>
#include <sys/mman.h>
#include <time.h>

#define SIZE_MAX_GIB       65536u
#define PENDING_MAX        100u            /* under way at once, of an account (EBS quota) */
#define TIMEOUT_MIN        60u             /* minutes, when none is given */
#define NOTED_NS           (60 * NS_PER_S) /* a newer block is noted after so long */
#define COMPLETE_WAIT_NS   (8 * NS_PER_S)
#define COMPLETE_LOOK_NS   (20 * NS_PER_MS)
#define CHECKSUM_TEXT_SIZE 44u

/* ---- StartSnapshot ---- */

static int start_parent(struct aws_call *call, const struct ebs_start_snapshot_request *in,
                        const struct view_entry **ret, struct err *err)
{
    *ret = NULL;
    if (!str_is_set(in->parent_snapshot_id)) {
        return 0;
    }
    const struct view_entry *e = ebs_find_readable(call, in->parent_snapshot_id, err);
    if (!e) {
        return err->code;
    }
    const struct snapshot *p = REC(snapshot, e);
    if (!str_eq(p->account, call->account)) {
        fail(err, -EACCES, "AccessDeniedException",
             "The parent snapshot belongs to another account.");
        return err_hint(err, "UNAUTHORIZED_ACCOUNT");
    }
    if (in->encrypted.is_set || str_is_set(in->kms_key_arn)) {
        return ebs_invalid(err, "INVALID_PARAMETER_VALUE",
                           "Encryption follows from the parent snapshot: it cannot be given.");
    }
    if ((uint64_t)in->volume_size.v < p->size_gib) {
        return ebs_invalid(err, "INVALID_VOLUME_SIZE",
                           "The size is less than that of the parent snapshot.");
    }
    *ret = e;
    return 0;
}

static int start_crypt(struct aws_call *call, const struct ebs_start_snapshot_request *in,
                       const struct snapshot *parent, struct snapshot *s, struct err *err)
{
    const struct ebs_crypt_ask ask = {.encrypted = in->encrypted,
                                      .kms_key_id = in->kms_key_arn,
                                      .is_source_encrypted = false};
    struct err e = ERR_INIT;
    if (parent) {
        s->is_encrypted = parent->is_encrypted;
        s->kms_key_id = parent->kms_key_id.p ? parent->kms_key_id : STR("");
        return 0;
    }
    if (str_is_set(in->kms_key_arn) && !(in->encrypted.is_set && in->encrypted.v)) {
        return ebs_invalid(err, "INVALID_PARAMETER_VALUE",
                           "KmsKeyArn requires Encrypted to be true.");
    }
    if (ebs_crypt(call, &ask, &s->is_encrypted, &s->kms_key_id, &e) < 0) {
        return ebs_invalid(err, "INVALID_CUSTOMER_KEY", "%s", e.msg);
    }
    return 0;
}

static int start_tags(struct aws_call *call, const struct ebs_start_snapshot_request *in,
                      struct tag_list *ret, struct err *err)
{
    static const char *const types[] = {"snapshot", NULL};
    struct ec2_tag_specification one = {.resource_type = STR("snapshot")};
    struct ec2_tag_specification_list list = {.v = &one, .n = 1, .is_set = true};
    struct err e = ERR_INIT;
    AWS_LIST_MAKE(call->arena, &one.tags, in->tags.n);
    for (size_t i = 0; i < in->tags.n; i++) {
        one.tags.v[i].key = in->tags.v[i].key;
        one.tags.v[i].value = in->tags.v[i].value;
    }
    if (in->tags.n && tags_from_spec(call->arena, &list, "snapshot", types, ret, &e) < 0) {
        return ebs_invalid(err, "INVALID_TAG", "%s", e.msg);
    }
    return 0;
}

static int start_limit(struct aws_call *call, struct err *err)
{
    struct entries all = store_list(gw_of(call), call->arena, "snapshot", call->account);
    unsigned n = 0;
    for (size_t i = 0; i < all.n; i++) {
        struct snap s = snap_join(call, all.v[i]);
        n += str_eqc(s.spec->source, "ebs") && str_eqc(s.state, "pending") &&
             !str_eqc(s.spec->want, "deleted");
    }
    return n < PENDING_MAX ? 0
                           : fail(err, -EBUSY, "ConcurrentLimitExceededException",
                                  "%u snapshots are pending.", PENDING_MAX);
}

static void start_out(struct aws_call *call, const struct snapshot *s, struct tag_list tags,
                      struct ebs_start_snapshot_response *out)
{
    out->snapshot_id = s->id;
    out->owner_id = s->account;
    out->status = STR("pending");
    out->start_time = some_time(s->create_ns);
    out->volume_size = some_i64((int64_t)s->size_gib);
    out->block_size = some_i64(EBS_BLOCK);
    out->description = s->description.n ? s->description : STR_NONE;
    out->parent_snapshot_id = s->from_id.n ? s->from_id : STR_NONE;
    out->kms_key_arn = s->is_encrypted ? s->kms_key_id : STR_NONE;
    out->sse_type = s->is_encrypted ? STR("sse-kms") : STR("none");
    AWS_LIST_MAKE(call->arena, &out->tags, tags.n);
    out->tags.is_set = tags.n > 0;
    for (size_t i = 0; i < tags.n; i++) {
        out->tags.v[i].key = tags.v[i].key;
        out->tags.v[i].value = tags.v[i].value;
    }
}

/* Tokens may be longer here than aws/token.h takes: their hash stands for them. */
static int start_token(struct aws_call *call, const struct ebs_start_snapshot_request *in,
                       struct aws_token *ret, struct err *err)
{
    uint8_t hash[SHA256_SIZE];
    char hex[2 * SHA256_SIZE + 1];
    struct err e = ERR_INIT;
    struct str token = STR_NONE;
    if (str_is_set(in->client_token)) {
        sha256(in->client_token, hash);
        hex_encode_to(hash, sizeof(hash), hex);
        token = str_n(hex, 64);
    }
    int r = txn_token_begin(call, token, in, ret, &e);
    if (r < 0 && strcmp(e.name, "IdempotentParameterMismatch") == 0) {
        return fail(err, -EEXIST, "ConflictException",
                    "The client token was used by a request with other parameters.");
    }
    return r < 0 ? fail(err, r, e.name, "%s", e.msg) : 0;
}

static int start_replay(struct aws_call *call, struct str id,
                        struct ebs_start_snapshot_response *out, struct err *err)
{
    const struct view_entry *e = ebs_find(call, id, err);
    if (!e) {
        return err->code;
    }
    struct snap s = snap_join(call, e);
    start_out(call, s.spec, tags_of(gw_of(call), call->arena, call->account, id), out);
    out->status = s.state;
    return 0;
}

static int start_make(struct aws_call *call, const struct ebs_start_snapshot_request *in,
                      const struct view_entry *parent, struct snapshot *ret, struct err *err)
{
    *ret = (struct snapshot){
        .id = id_new(call->arena, "snap"),
        .account = call->account,
        .description = str_is_set(in->description) ? in->description : STR(""),
        .generation = 1,
        .want = STR("present"),
        .source = STR("ebs"),
        .volume_id = STR(SNAPSHOT_NO_VOLUME),
        .group = STR(""),
        .from_id = parent ? in->parent_snapshot_id : STR(""),
        .from_account = parent ? call->account : STR(""),
        .image_id = STR(""),
        .node = str_c(gw_of(call)->cfg->node),
        .size_gib = (uint64_t)in->volume_size.v,
        .size = (uint64_t)in->volume_size.v << 30,
        .create_ns = call->now_ns,
        .timeout_min = in->timeout.is_set ? (uint64_t)in->timeout.v : TIMEOUT_MIN,
        .checksum = STR(""),
        .state = STR(""),
    };
    return start_crypt(call, in, REC(snapshot, parent), ret, err);
}

int ebs_start_snapshot(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ebs_start_snapshot_request *in = input;
    const struct view_entry *parent = NULL;
    struct tag_list tags = {0};
    struct snapshot s;
    struct aws_token tok;
    int r = start_token(call, in, &tok, err);
    if (r < 0) {
        return r;
    }
    if (tok.is_replay) {
        return start_replay(call, tok.result, output, err);
    }
    if (in->volume_size.v > SIZE_MAX_GIB) {
        return ebs_invalid(err, "INVALID_VOLUME_SIZE", "The size is more than %u GiB.",
                           SIZE_MAX_GIB);
    }
    if ((r = start_parent(call, in, &parent, err)) < 0 ||
        (r = start_tags(call, in, &tags, err)) < 0 ||
        (r = start_make(call, in, parent, &s, err)) < 0 || (r = start_limit(call, err)) < 0) {
        return r;
    }
    struct txn *t = txn_open(call);
    if (parent) { /* still there */
        txn_expect(t, parent->key, parent->mod_rev);
    }
    txn_create(t, key_spec(t->a, "snapshot", s.account, s.id), &snapshot_desc, &s);
    tags_create(t, s.account, s.id, "snapshot", tags);
    txn_token(t, call, &tok, s.id);
    if ((r = txn_commit(t, err)) < 0) {
        return r;
    }
    snap_wait_taken(call, &s, 1); /* blocks can be put now */
    start_out(call, &s, tags, output);
    return 0;
}

/* ---- PutSnapshotBlock ---- */

/* The caller's own, and one that StartSnapshot made. */
static const struct view_entry *find_written(struct aws_call *call, struct str id,
                                             struct err *err)
{
    const struct view_entry *e = ebs_find(call, id, err);
    const struct snapshot *s = e ? REC(snapshot, e) : NULL;
    if (s && !str_eq(s->account, call->account)) {
        fail(err, -EACCES, "AccessDeniedException", "The snapshot belongs to another account.");
        err_hint(err, "UNAUTHORIZED_ACCOUNT");
        return NULL;
    }
    if (s && !str_eqc(s->source, "ebs")) {
        ebs_invalid(err, "INVALID_SNAPSHOT_ID", "The snapshot '%.*s' cannot be written.",
                    STR_ARG(id));
        return NULL;
    }
    return e;
}

static int check_data(const struct ebs_put_snapshot_block_request *in, const struct snapshot *s,
                      struct err *err)
{
    uint8_t sum[SHA256_SIZE];
    AUTO_BUF text;
    buf_init(&text, 64);
    if (in->data_length.v != EBS_BLOCK || in->block_data.n != EBS_BLOCK) {
        return ebs_invalid(err, "INVALID_PARAMETER_VALUE",
                           "A block has %u bytes: x-amz-Data-Length says %lld, and %zu came.",
                           EBS_BLOCK, (long long)in->data_length.v, in->block_data.n);
    }
    if ((uint64_t)in->block_index.v >= (s->size_gib << 30) / EBS_BLOCK) {
        return ebs_invalid(err, "INVALID_BLOCK", "The block is past the end of the snapshot.");
    }
    sha256(in->block_data, sum);
    base64_encode(str_n((const char *)sum, sizeof(sum)), &text);
    if (!str_eq(buf_str(&text), in->checksum)) {
        return ebs_invalid(err, "INVALID_PARAMETER_VALUE",
                           "The checksum is not that of the block.");
    }
    return 0;
}

static int send_block(struct aws_call *call, const struct ebs_put_snapshot_block_request *in,
                      struct err *err)
{
    struct jw w;
    AUTO_BUF args;
    buf_init(&args, 1024);
    AUTO_FD fd = memfd_create("block", MFD_CLOEXEC);
    if (fd < 0 || write(fd, in->block_data.p, in->block_data.n) != (ssize_t)in->block_data.n) {
        return fail(err, -ENOMEM, "InternalError", "no memory for a block: %m");
    }
    jw_init(&w, &args);
    jw_obj(&w, NULL);
    jw_str(&w, "account", call->account);
    jw_str(&w, "snapshot_id", in->snapshot_id);
    jw_u64(&w, "block", (uint64_t)in->block_index.v);
    jw_str(&w, "checksum", in->checksum);
    jw_obj_end(&w);
    return ebs_ask(call, "block.put", buf_str(&args), &fd, NULL, err);
}

/* The timeout counts from the newest block. Who is not the first to say so need not: nothing is
 * lost when the record has changed meanwhile. */
static void note_put(struct aws_call *call, const struct view_entry *e)
{
    struct snapshot s = *REC(snapshot, e);
    if (call->now_ns < MAX(s.last_put_ns, s.create_ns) + NOTED_NS) {
        return;
    }
    struct txn *t = txn_open(call);
    s.last_put_ns = call->now_ns;
    txn_update(t, e, &snapshot_desc, &s);
    (void)!txn_commit(t, NULL);
}

int ebs_put_snapshot_block(struct aws_call *call, const void *input, void *output,
                           struct err *err)
{
    const struct ebs_put_snapshot_block_request *in = input;
    struct ebs_put_snapshot_block_response *out = output;
    const struct view_entry *e = find_written(call, in->snapshot_id, err);
    if (!e) {
        return err->code;
    }
    struct snap s = snap_join(call, e);
    int r = check_data(in, s.spec, err);
    if (r < 0) {
        return r;
    }
    if (!str_eqc(s.state, "pending") || s.spec->is_complete_wanted) {
        return ebs_invalid(err, "INVALID_SNAPSHOT_ID",
                           "The snapshot '%.*s' is not pending, or is being completed.",
                           STR_ARG(in->snapshot_id));
    }
    if ((r = send_block(call, in, err)) < 0) {
        return r;
    }
    note_put(call, e);
    out->checksum = in->checksum;
    out->checksum_algorithm = STR("SHA256");
    return 0;
}

/* ---- CompleteSnapshot ---- */

static int check_sum(const struct ebs_complete_snapshot_request *in, struct err *err)
{
    bool has_sum = str_is_set(in->checksum);
    AUTO_BUF plain;
    buf_init(&plain, 64);
    if (has_sum && (in->checksum.n != CHECKSUM_TEXT_SIZE ||
                    base64_decode(in->checksum, &plain) < 0 || plain.n != SHA256_SIZE)) {
        return ebs_invalid(err, "INVALID_PARAMETER_VALUE",
                           "The checksum is not a SHA-256 in base64.");
    }
    if (has_sum != str_is_set(in->checksum_algorithm) ||
        has_sum != str_is_set(in->checksum_aggregation_method)) {
        return ebs_invalid(err, "INVALID_PARAMETER_VALUE",
                           "Checksum, ChecksumAlgorithm and ChecksumAggregationMethod go "
                           "together.");
    }
    return 0;
}

static int want_complete(struct aws_call *call, const struct view_entry *e,
                         const struct ebs_complete_snapshot_request *in, struct err *err)
{
    struct snapshot s = *REC(snapshot, e);
    uint64_t n = (uint64_t)in->changed_blocks_count.v;
    struct str sum = in->checksum.p ? in->checksum : STR("");
    if (s.is_complete_wanted) { /* the same again is nothing */
        return s.changed_blocks == n && str_eq(s.checksum.p ? s.checksum : STR(""), sum)
                   ? 0
                   : ebs_invalid(err, "INVALID_PARAMETER_VALUE",
                                 "The snapshot is being completed with other values.");
    }
    s.is_complete_wanted = true;
    s.changed_blocks = n;
    s.checksum = sum;
    s.generation++;
    struct txn *t = txn_open(call);
    txn_update(t, e, &snapshot_desc, &s);
    return txn_commit(t, err);
}

/* What the count and the checksum are worth is found out by the block service. */
static struct snap wait_complete(struct aws_call *call, struct str id)
{
    const struct timespec nap = {.tv_nsec = COMPLETE_LOOK_NS};
    uint64_t end = time_mono_ns() + COMPLETE_WAIT_NS;
    struct snap s = {.state = STR("pending")};
    for (;;) {
        const struct view_entry *e =
            store_spec(gw_of(call), call->arena, "snapshot", call->account, id);
        if (e) {
            s = snap_join(call, e);
        }
        if (!str_eqc(s.state, "pending") || time_mono_ns() > end) {
            return s;
        }
        nanosleep(&nap, NULL);
    }
}

int ebs_complete_snapshot(struct aws_call *call, const void *input, void *output,
                          struct err *err)
{
    const struct ebs_complete_snapshot_request *in = input;
    struct ebs_complete_snapshot_response *out = output;
    const struct view_entry *e = find_written(call, in->snapshot_id, err);
    if (!e) {
        return err->code;
    }
    int r = check_sum(in, err);
    if (r < 0 || (r = want_complete(call, e, in, err)) < 0) {
        return r;
    }
    struct snap s = wait_complete(call, in->snapshot_id);
    if (str_eqc(s.state, "error")) {
        return ebs_invalid(err, "INVALID_PARAMETER_VALUE", "The snapshot failed: %.*s",
                           s.status ? (int)s.status->reason.n : 0,
                           s.status && s.status->reason.p ? s.status->reason.p : "");
    }
    out->status = s.state;
    return 0;
}
