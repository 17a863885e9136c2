/* PutObject, UploadPart and DeleteObject: changes that the store makes while no thread waits. */
#include "predastore/front_int.h"

#include "aws/s3_cond.h"
#include "aws/s3_range.h"
#include "model/config.h"
#include "predastore/page.h"

#include <errno.h>

/* ---- the common part ---- */

/* On the loop's thread again. */
static void committed(void *ctx)
{
    struct front_call *fc = ctx;
    if (fc->change.rc < 0) {
        front_fail(fc, &fc->change.err);
        return;
    }
    fc->in.put = NULL; /* the store's now */
    fc->on_committed(fc);
}

static void on_change_done(struct ochange *ch)
{
    struct front_call *fc = ch->ctx;
    loop_post(http_req_loop(fc->req), committed, fc);
}

void front_change(struct front_call *fc, void (*answer)(struct front_call *fc))
{
    fc->on_committed = answer;
    fc->change.done = on_change_done;
    fc->change.ctx = fc;
    ochange_start(fc->c.store, &fc->change);
}

static void start_commit(struct front_call *fc)
{
    struct orec *rec = &fc->change.rec;
    struct err e = ERR_INIT;
    if (intake_sums(fc, &e) < 0) {
        front_fail(fc, &e);
        return;
    }
    char etag[S3_ETAG_SIZE];
    s3_etag(fc->sums.md5, etag);
    rec->etag = arena_str_dup(fc->c.arena, str_c(etag));
    rec->size = fc->sums.size;
    rec->sum = s3_osum(fc->c.arena, &fc->sums.sum, false);
    fc->change.body = fc->in.put;
    front_change(fc, fc->on_committed);
}

static void put_stored(void *ctx, int rc, const struct err *err)
{
    struct front_call *fc = ctx;
    if (rc < 0) {
        front_fail(fc, err);
        return;
    }
    start_commit(fc);
}

void put_commit(struct front_call *fc, void (*answer)(struct front_call *fc))
{
    fc->on_committed = answer;
    oput_finish(fc->in.put, put_stored, fc);
}

/* "*" and one ETag, with or without quotes; the store compares them at the moment of the change.
 * A header without a value is a condition that nothing meets, not none. */
void front_cond(const struct s3_call *c, struct ochange_if *ret)
{
    struct str match = aws_http_header(&c->rq, "If-Match");
    struct str none_match = str_trim(aws_http_header(&c->rq, "If-None-Match"));
    *ret = OCHANGE_IF_NONE;
    if (str_is_set(match)) {
        ret->match = str_trim(match).n ? s3_etag_bare(match) : STR("");
    }
    if (none_match.n) {
        ret->none_match = s3_etag_bare(none_match);
    }
}

int front_cond_more(struct opt_i64 size, struct opt_time mtime, struct ochange_if *ret,
                    struct err *err)
{
    if (size.is_set && size.v < 0) { /* to the store it would say "any" */
        return fail(err, -EINVAL, "InvalidArgument", "The size of a condition is negative.");
    }
    if (size.is_set) {
        ret->size = size.v;
    }
    if (mtime.is_set) { /* so would second 0; nothing is from then */
        ret->mtime_s = mtime.ns / NS_PER_S ? mtime.ns / NS_PER_S : UINT64_MAX;
    }
    return 0;
}

struct str front_sse(const struct s3_call *c, bool is_sealed)
{
    return is_sealed || c->s3->cfg->predastore.is_encrypted ? STR("AES256") : STR_NONE;
}

/* ---- PutObject ---- */

static void put_answer(struct front_call *fc)
{
    struct s3_call *c = &fc->c;
    struct orec *rec = &fc->change.rec;
    struct s3_put_object_output out = {0};
    struct oversion v = {.rec = *rec, .is_latest = true};
    v.rec.time_ns = fc->change.time_ns;
    out.e_tag = s3_quoted(c->arena, rec->etag);
    S3_SUM_OUT(&out, c->arena, &rec->sum, 0);
    out.checksum_type = s3_osum_type(&rec->sum);
    out.server_side_encryption = front_sse(c, false);
    out.expiration = s3_expiration(c, &v);
    out.version_id = s3_made_version(c->arena, &fc->change);
    front_finish(fc, &out);
}

static int put_begin(struct front_call *fc, struct err *err)
{
    struct s3_call *c = &fc->c;
    void *input = NULL;
    int r = rest_decode(&aws_service_s3, c->t.op, &c->rq, &c->t, c->arena, &input, err);
    if (r < 0 || (r = front_authorize(fc, input, err)) < 0) {
        return r;
    }
    s3_change_init(c, &fc->change, OCHANGE_PUT);
    if ((r = s3_take_all(c, &fc->change.rec, err)) < 0 ||
        (r = intake_begin(fc, SINK_STORE, S3_OBJECT_MAX, 0, S3_SUM_CRC64NVME, err)) < 0) {
        return r;
    }
    front_cond(c, &fc->change.cond);
    return intake_open(fc, err);
}

void put_start(struct front_call *fc)
{
    struct err e = ERR_INIT;
    if (put_begin(fc, &e) < 0) {
        front_fail(fc, &e);
    }
}

static void part_answer(struct front_call *fc);

void put_end(struct front_call *fc)
{
    struct err e = ERR_INIT;
    if (intake_end(fc, &e) < 0) {
        front_fail(fc, &e);
        return;
    }
    put_commit(fc, fc->c.t.op == S3_OP_UPLOAD_PART ? part_answer : put_answer);
}

/* ---- UploadPart ---- */

static void part_answer(struct front_call *fc)
{
    struct s3_call *c = &fc->c;
    struct orec *rec = &fc->change.rec;
    struct s3_upload_part_output out = {0};
    out.e_tag = s3_quoted(c->arena, rec->etag);
    S3_SUM_OUT(&out, c->arena, &rec->sum, 0);
    out.server_side_encryption = front_sse(c, false);
    front_finish(fc, &out);
}

int s3_upload_part_number(struct s3_call *c, struct opt_i64 number, unsigned *ret,
                          struct err *err)
{
    struct str text =
        number.is_set ? arena_fmt(c->arena, "%lld", (long long)number.v) : STR("");
    int r = s3_part_number(text, STR_NONE, ret, err);
    if (r < 0) {
        page_name(c, "partNumber", text);
    }
    return r;
}

/* The upload must be there before a byte of the part comes; what it wants summed, too. */
static int part_begin(struct front_call *fc, struct err *err)
{
    struct s3_call *c = &fc->c;
    const struct s3_upload_part_request *in = fc->input;
    struct opart_page page = {0};
    struct orec *rec = &fc->change.rec;
    unsigned number = 0;
    s3_change_init(c, &fc->change, OCHANGE_PART);
    int r = s3_upload_part_number(c, in->part_number, &number, err);
    if (r < 0) {
        return r;
    }
    if ((r = s3_upload_id(in->upload_id, rec->upload, err)) < 0 ||
        (r = ostore_parts(c->store, c->bucket, c->t.key, rec->upload, 0, 1, c->arena, &page,
                          err)) < 0) {
        return r;
    }
    rec->part_number = number;
    /* CRC64NVME is also what an upload has that asked for none. */
    enum s3_sum_alg alg = (enum s3_sum_alg)page.upload.sum.alg;
    if ((r = intake_begin(fc, SINK_STORE, S3_OBJECT_MAX, 0, S3_SUM_CRC64NVME, err)) < 0 ||
        (r = s3_sum_want_part(&fc->in.want, alg == S3_SUM_NONE ? S3_SUM_CRC64NVME : alg,
                              alg == S3_SUM_NONE || alg == S3_SUM_CRC64NVME, err)) < 0) {
        return r;
    }
    return intake_open(fc, err);
}

static void part_job(void *ctx)
{
    struct front_call *fc = ctx;
    struct err e = ERR_INIT;
    if (part_begin(fc, &e) < 0) {
        front_fail(fc, &e); /* ends the pause */
    } else {
        http_req_resume(fc->req);
    }
}

void part_start(struct front_call *fc)
{
    struct s3_call *c = &fc->c;
    struct err e = ERR_INIT;
    void *input = NULL;
    if (rest_decode(&aws_service_s3, c->t.op, &c->rq, &c->t, c->arena, &input, &e) < 0 ||
        front_authorize(fc, input, &e) < 0) {
        front_fail(fc, &e);
        return;
    }
    fc->input = input;
    if (!fc->is_asked) { /* it is paused already */
        http_req_pause(fc->req);
    }
    front_submit(fc, c->s3->pool, part_job);
}

/* ---- DeleteObject ---- */

static void delete_answer(struct front_call *fc)
{
    struct s3_call *c = &fc->c;
    struct ochange *ch = &fc->change;
    struct s3_delete_object_output out = {0};
    if (ch->is_marker) {
        out.delete_marker = some_bool(true);
    }
    if (ch->is_version) {
        out.version_id = s3_version_text(c->arena, ch->rec.version);
    } else if (ch->is_version_made) {
        out.version_id = s3_version_text(c->arena, ch->version);
    }
    front_finish(fc, &out);
}

static int delete_begin(struct front_call *fc, struct err *err)
{
    struct s3_call *c = &fc->c;
    const struct s3_delete_object_request *in = fc->input;
    struct ochange_if *cond = &fc->change.cond;
    s3_change_init(c, &fc->change, OCHANGE_DELETE);
    front_cond(c, cond);
    int r = front_cond_more(in->if_match_size, in->if_match_last_modified_time, cond, err);
    return r < 0 ? r
                 : s3_version(c, in->version_id, fc->change.rec.version, &fc->change.is_version,
                              err);
}

void delete_start(struct front_call *fc)
{
    struct err e = ERR_INIT;
    if (delete_begin(fc, &e) < 0) {
        front_fail(fc, &e);
        return;
    }
    front_change(fc, delete_answer);
}
