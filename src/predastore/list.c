/* The lists of a bucket: objects (both forms), versions, uploads, and the parts of an upload. */
#include "predastore/ops.h"

#include "aws/codec_out.h"
#include "aws/s3_lifecycle.h"
#include "aws/xml_out.h"
#include "predastore/lifecycle.h"
#include "predastore/page.h"

#include <errno.h>

/* Lists show whole seconds, as Last-Modified does. */
static struct opt_time when(uint64_t ns)
{
    return some_time(ns - ns % NS_PER_S);
}

/* A page of the store with its entries told apart. */
struct listing {
    struct olist_query q;
    struct page_enc enc;
    struct olist_page page;
    size_t n_prefixes, n_others;
    size_t max;
    struct s3_common_prefix_list prefixes;
};

static struct str or_empty(struct str s)
{
    return str_is_set(s) ? s : STR("");
}

static int listing_begin(struct s3_call *c, struct listing *l, enum olist_kind kind,
                         struct str prefix, struct str delimiter, struct str encoding,
                         struct err *err)
{
    *l = (struct listing){
        .q = {.kind = kind, .prefix = prefix, .delimiter = delimiter, .after = STR_NONE}};
    return page_enc_begin(c, encoding, &l->enc, err);
}

/* Fills page and prefixes. max 0: nothing, and nothing follows (as AWS). */
static int listing_run(struct s3_call *c, struct listing *l, struct err *err)
{
    struct arena *a = c->arena;
    l->q.max = l->max;
    if (l->max > 0) {
        int r = ostore_list(c->store, c->bucket, &l->q, a, &l->page, err);
        if (r < 0) {
            return r;
        }
    }
    for (size_t i = 0; i < l->page.n; i++) {
        l->n_prefixes += str_is_set(l->page.v[i].prefix);
    }
    l->n_others = l->page.n - l->n_prefixes;
    if (l->n_prefixes > 0) {
        size_t k = 0;
        AWS_LIST_MAKE(a, &l->prefixes, l->n_prefixes);
        for (size_t i = 0; i < l->page.n; i++) {
            if (str_is_set(l->page.v[i].prefix)) {
                l->prefixes.v[k++].prefix = page_enc_text(&l->enc, l->page.v[i].prefix);
            }
        }
    }
    return 0;
}

static void sum_names(struct arena *a, const struct orec_sum *sum, struct aws_str_list *ret_alg,
                      struct str *ret_type)
{
    if (sum->alg != OSUM_NONE) {
        AWS_LIST_MAKE(a, ret_alg, 1);
        ret_alg->v[0] = str_c(s3_sum_name((enum s3_sum_alg)sum->alg));
        *ret_type = s3_osum_type(sum);
    }
}

/* ---- objects ---- */

/* The prefix of the first form of the list: some SDKs decode it, others (botocore) do not. What
 * decodes to itself is right for both. */
static struct str plain_or_encoded(const struct page_enc *e, struct str prefix)
{
    for (size_t i = 0; i < prefix.n; i++) {
        unsigned char ch = (unsigned char)prefix.p[i];
        if (ch == '%' || ch == '+' || (ch < ' ' && ch != '\t' && ch != '\n') || ch == 0x7f) {
            return page_enc_text(e, prefix);
        }
    }
    return prefix;
}

static void fill_objects(struct s3_call *c, const struct listing *l, struct s3_owner *owner,
                         struct s3_object_list *out)
{
    size_t k = 0;
    if (l->n_others == 0) {
        return;
    }
    AWS_LIST_MAKE(c->arena, out, l->n_others);
    for (size_t i = 0; i < l->page.n; i++) {
        const struct orec *rec = &l->page.v[i].version.rec;
        if (str_is_set(l->page.v[i].prefix)) {
            continue;
        }
        struct s3_object *o = &out->v[k++];
        o->key = page_enc_text(&l->enc, rec->key);
        o->last_modified = when(rec->time_ns);
        o->e_tag = s3_quoted(c->arena, rec->etag);
        o->size = some_i64((int64_t)rec->size);
        o->storage_class = s3_class(rec);
        o->owner = owner;
        sum_names(c->arena, &rec->sum, &o->checksum_algorithm, &o->checksum_type);
    }
}

int op_list_objects(struct s3_call *c, const void *input, void *output, struct err *err)
{
    const struct s3_list_objects_request *in = input;
    struct s3_list_objects_output *out = output;
    struct listing l;
    int r =
        listing_begin(c, &l, OLIST_OBJECTS, in->prefix, in->delimiter, in->encoding_type, err);
    if (r < 0 || (r = page_size(c, "max-keys", in->max_keys, PAGE_MAX, &l.max, err)) < 0) {
        return r;
    }
    l.q.after = in->marker.n ? in->marker : STR_NONE;
    if ((r = listing_run(c, &l, err)) < 0) {
        return r;
    }
    out->name = c->bucket->name;
    out->prefix = plain_or_encoded(&l.enc, or_empty(in->prefix));
    out->marker = page_enc_text(&l.enc, or_empty(in->marker));
    out->max_keys = some_i64((int64_t)l.max);
    out->encoding_type = in->encoding_type;
    out->is_truncated = some_bool(l.page.is_truncated);
    out->common_prefixes = l.prefixes;
    if (in->delimiter.n) {
        out->delimiter = page_enc_text(&l.enc, in->delimiter);
        if (l.page.is_truncated) { /* without a delimiter clients go on from the last key */
            out->next_marker = page_enc_text(&l.enc, l.page.next);
        }
    }
    fill_objects(c, &l, s3_owner_of(c->arena, c->bucket->account), &out->contents);
    return 0;
}

int op_list_objects_v2(struct s3_call *c, const void *input, void *output, struct err *err)
{
    const struct s3_list_objects_v2_request *in = input;
    struct s3_list_objects_v2_output *out = output;
    struct listing l;
    int r =
        listing_begin(c, &l, OLIST_OBJECTS, in->prefix, in->delimiter, in->encoding_type, err);
    if (r < 0 || (r = page_size(c, "max-keys", in->max_keys, PAGE_MAX, &l.max, err)) < 0) {
        return r;
    }
    if (in->continuation_token.n) {
        r = page_token_take(c, c->bucket->number, in->continuation_token, &l.q.after, err);
    } else {
        l.q.after = in->start_after.n ? in->start_after : STR_NONE;
    }
    if (r < 0 || (r = listing_run(c, &l, err)) < 0) {
        return r;
    }
    bool is_owner = in->fetch_owner.is_set && in->fetch_owner.v;
    out->name = c->bucket->name;
    out->prefix = page_enc_text(&l.enc, or_empty(in->prefix));
    out->max_keys = some_i64((int64_t)l.max);
    out->key_count = some_i64((int64_t)l.page.n);
    out->encoding_type = in->encoding_type;
    out->is_truncated = some_bool(l.page.is_truncated);
    out->common_prefixes = l.prefixes;
    out->continuation_token = in->continuation_token;
    out->start_after = page_enc_text(&l.enc, in->start_after);
    if (in->delimiter.n) {
        out->delimiter = page_enc_text(&l.enc, in->delimiter);
    }
    if (l.page.is_truncated) {
        out->next_continuation_token = page_token(c->arena, c->bucket->number, l.page.next);
    }
    fill_objects(c, &l, is_owner ? s3_owner_of(c->arena, c->bucket->account) : NULL,
                 &out->contents);
    return 0;
}

/* ---- versions ---- */

static void fill_version(struct s3_call *c, const struct listing *l, const struct oversion *v,
                         struct s3_owner *owner, struct s3_object_version *o)
{
    o->key = page_enc_text(&l->enc, v->rec.key);
    o->version_id = s3_version_text(c->arena, v->rec.version);
    o->is_latest = some_bool(v->is_latest);
    o->last_modified = when(v->rec.time_ns);
    o->e_tag = s3_quoted(c->arena, v->rec.etag);
    o->size = some_i64((int64_t)v->rec.size);
    o->storage_class = s3_class(&v->rec);
    o->owner = owner;
    sum_names(c->arena, &v->rec.sum, &o->checksum_algorithm, &o->checksum_type);
}

/* Versions and delete markers stand in one order, as they came about: the model has two lists,
 * which would lose it, and there are clients that read one after the other. */
static int encode_versions(struct s3_call *c, const struct listing *l,
                           const struct s3_list_object_versions_output *head, struct err *err)
{
    const struct aws_service *s = &aws_service_s3;
    struct buf *b = &c->answer.body;
    struct s3_owner *owner = s3_owner_of(c->arena, c->bucket->account);
    int version = aws_shape_find(s, STR("ObjectVersion"));
    int marker = aws_shape_find(s, STR("DeleteMarkerEntry"));
    int prefix = aws_shape_find(s, STR("CommonPrefix"));
    buf_fmt(b, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListVersionsResult xmlns=\"%s\">",
            s->xmlns);
    aws_encode_struct(s, s->ops[S3_OP_LIST_OBJECT_VERSIONS].out, head, b);
    for (size_t i = 0; i < l->page.n; i++) {
        const struct oversion *v = &l->page.v[i].version;
        if (str_is_set(l->page.v[i].prefix)) {
            continue;
        }
        bool is_marker = v->rec.kind == OREC_MARKER;
        xml_open(b, is_marker ? "DeleteMarker" : "Version");
        if (is_marker) {
            const struct s3_delete_marker_entry d = {
                .key = page_enc_text(&l->enc, v->rec.key),
                .version_id = s3_version_text(c->arena, v->rec.version),
                .is_latest = some_bool(v->is_latest),
                .last_modified = when(v->rec.time_ns),
                .owner = owner};
            aws_encode_struct(s, (uint16_t)marker, &d, b);
        } else {
            struct s3_object_version o = {0};
            fill_version(c, l, v, owner, &o);
            aws_encode_struct(s, (uint16_t)version, &o, b);
        }
        xml_close(b, is_marker ? "DeleteMarker" : "Version");
    }
    for (size_t i = 0; i < l->prefixes.n; i++) {
        xml_open(b, "CommonPrefixes");
        aws_encode_struct(s, (uint16_t)prefix, &l->prefixes.v[i], b);
        xml_close(b, "CommonPrefixes");
    }
    xml_close(b, "ListVersionsResult");
    rest_header(&c->answer, "Content-Type", STR("application/xml"));
    c->is_encoded = true;
    return buf_ok(b) ? 0 : fail(err, -E2BIG, "InternalError", "a list does not fit");
}

int op_list_object_versions(struct s3_call *c, const void *input, void *output, struct err *err)
{
    const struct s3_list_object_versions_request *in = input;
    struct s3_list_object_versions_output *out = output;
    struct listing l;
    uint8_t after_id[OREC_ID_SIZE];
    bool is_id = false;
    int r =
        listing_begin(c, &l, OLIST_VERSIONS, in->prefix, in->delimiter, in->encoding_type, err);
    if (r < 0 || (r = page_size(c, "max-keys", in->max_keys, PAGE_MAX, &l.max, err)) < 0) {
        return r;
    }
    if (str_is_set(in->version_id_marker) && !in->key_marker.n) {
        return page_bad(c, "version-id-marker", in->version_id_marker,
                        "A version-id marker cannot be specified without a key marker.", err);
    }
    if (in->version_id_marker.n &&
        (r = s3_version(c, in->version_id_marker, after_id, &is_id, err)) < 0) {
        return r;
    }
    l.q.after = in->key_marker.n ? in->key_marker : STR_NONE;
    l.q.after_id = is_id ? after_id : NULL;
    if ((r = listing_run(c, &l, err)) < 0) {
        return r;
    }
    out->name = c->bucket->name;
    out->prefix = page_enc_text(&l.enc, or_empty(in->prefix));
    out->key_marker = page_enc_text(&l.enc, or_empty(in->key_marker));
    out->version_id_marker = or_empty(in->version_id_marker);
    out->max_keys = some_i64((int64_t)l.max);
    out->encoding_type = in->encoding_type;
    out->is_truncated = some_bool(l.page.is_truncated);
    if (in->delimiter.n) {
        out->delimiter = page_enc_text(&l.enc, in->delimiter);
    }
    if (l.page.is_truncated) {
        out->next_key_marker = page_enc_text(&l.enc, l.page.next);
        if (l.page.is_next_id) {
            out->next_version_id_marker = s3_version_text(c->arena, l.page.next_id);
        }
    }
    return encode_versions(c, &l, out, err);
}

/* ---- uploads ---- */

/* Who began an upload: of an account one does not see more than the account. */
static struct s3_initiator *initiator_of(struct arena *a, const struct s3_owner *owner)
{
    struct s3_initiator *i = arena_new_of(a, struct s3_initiator);
    i->id = owner->id;
    i->display_name = owner->display_name;
    return i;
}

static void fill_uploads(struct s3_call *c, const struct listing *l,
                         struct s3_multipart_upload_list *out)
{
    size_t k = 0;
    struct s3_owner *owner = s3_owner_of(c->arena, c->bucket->account);
    struct s3_initiator *initiator = initiator_of(c->arena, owner);
    if (l->n_others == 0) {
        return;
    }
    AWS_LIST_MAKE(c->arena, out, l->n_others);
    for (size_t i = 0; i < l->page.n; i++) {
        const struct olist_upload *u = &l->page.v[i].upload;
        if (str_is_set(l->page.v[i].prefix)) {
            continue;
        }
        struct s3_multipart_upload *o = &out->v[k++];
        o->key = page_enc_text(&l->enc, u->key);
        o->upload_id = s3_upload_text(c->arena, u->upload);
        o->initiated = when(u->rec.time_ns);
        o->storage_class = s3_class(&u->rec);
        o->owner = owner;
        o->initiator = initiator;
        if (u->rec.sum.alg != OSUM_NONE) {
            o->checksum_algorithm = str_c(s3_sum_name((enum s3_sum_alg)u->rec.sum.alg));
            o->checksum_type = s3_osum_type(&u->rec.sum);
        }
    }
}

/* Where to go on; AWS names the last upload on the last page, too. */
static void next_upload(struct s3_call *c, const struct listing *l,
                        struct s3_list_multipart_uploads_output *out)
{
    const struct s3_multipart_upload_list *v = &out->uploads;
    out->next_key_marker = STR("");
    out->next_upload_id_marker = STR("");
    if (l->page.is_truncated) {
        out->next_key_marker = page_enc_text(&l->enc, l->page.next);
        if (l->page.is_next_id) {
            out->next_upload_id_marker = s3_upload_text(c->arena, l->page.next_id);
        }
    } else if (v->n) {
        out->next_key_marker = v->v[v->n - 1].key;
        out->next_upload_id_marker = v->v[v->n - 1].upload_id;
    }
}

int op_list_multipart_uploads(struct s3_call *c, const void *input, void *output,
                              struct err *err)
{
    const struct s3_list_multipart_uploads_request *in = input;
    struct s3_list_multipart_uploads_output *out = output;
    struct listing l;
    uint8_t after_id[OREC_ID_SIZE];
    int r =
        listing_begin(c, &l, OLIST_UPLOADS, in->prefix, in->delimiter, in->encoding_type, err);
    if (r < 0 ||
        (r = page_size(c, "max-uploads", in->max_uploads, PAGE_MAX, &l.max, err)) < 0) {
        return r;
    }
    l.q.after = in->key_marker.n ? in->key_marker : STR_NONE;
    if (in->key_marker.n &&
        in->upload_id_marker.n) { /* without a key marker it means nothing */
        if (s3_upload_id(in->upload_id_marker, after_id, NULL) < 0) {
            return page_bad(c, "upload-id-marker", in->upload_id_marker,
                            "Invalid uploadId marker", err);
        }
        l.q.after_id = after_id;
    }
    if ((r = listing_run(c, &l, err)) < 0) {
        return r;
    }
    out->bucket = c->bucket->name;
    out->prefix = page_enc_text(&l.enc, or_empty(in->prefix));
    out->key_marker = page_enc_text(&l.enc, or_empty(in->key_marker));
    out->upload_id_marker = l.q.after_id ? in->upload_id_marker : STR("");
    out->max_uploads = some_i64((int64_t)l.max);
    out->encoding_type = in->encoding_type;
    out->is_truncated = some_bool(l.page.is_truncated);
    out->common_prefixes = l.prefixes;
    if (in->delimiter.n) {
        out->delimiter = page_enc_text(&l.enc, in->delimiter);
    }
    fill_uploads(c, &l, &out->uploads);
    next_upload(c, &l, out);
    return 0;
}

/* ---- parts ---- */

int op_list_parts(struct s3_call *c, const void *input, void *output, struct err *err)
{
    const struct s3_list_parts_request *in = input;
    struct s3_list_parts_output *out = output;
    struct opart_page page = {0};
    uint8_t upload[OREC_ID_SIZE];
    size_t max = 0, after = 0;
    int r = s3_upload_id(in->upload_id, upload, err);
    if (r < 0 || (r = page_size(c, "max-parts", in->max_parts, PAGE_MAX, &max, err)) < 0 ||
        (r = page_size(c, "part-number-marker", in->part_number_marker, OREC_PARTS_MAX, &after,
                       err)) < 0) {
        return r;
    }
    uint32_t marker = in->part_number_marker.is_set ? (uint32_t)after : 0;
    r = ostore_parts(c->store, c->bucket, c->t.key, upload, marker, max, c->arena, &page, err);
    if (r < 0) {
        return r;
    }
    out->bucket = c->bucket->name;
    out->key = c->t.key;
    out->upload_id = in->upload_id;
    out->part_number_marker = some_i64(marker);
    out->next_part_number_marker = some_i64(page.n ? page.v[page.n - 1].number : 0);
    out->max_parts = some_i64((int64_t)max);
    out->is_truncated = some_bool(page.is_truncated && max > 0);
    out->storage_class = s3_class(&page.upload);
    out->owner = s3_owner_of(c->arena, c->bucket->account);
    out->initiator = initiator_of(c->arena, out->owner);
    lifecycle_abort_date(c, page.upload.time_ns, &out->abort_date, &out->abort_rule_id);
    if (page.upload.sum.alg != OSUM_NONE) {
        out->checksum_algorithm = str_c(s3_sum_name((enum s3_sum_alg)page.upload.sum.alg));
        out->checksum_type = s3_osum_type(&page.upload.sum);
    }
    if (page.n > 0) {
        AWS_LIST_MAKE(c->arena, &out->parts, page.n);
    }
    for (size_t i = 0; i < page.n; i++) {
        const struct opart *p = &page.v[i];
        struct s3_part *o = &out->parts.v[i];
        o->part_number = some_i64(p->number);
        o->last_modified = when(p->time_ns);
        o->e_tag = s3_quoted(c->arena, p->etag);
        o->size = some_i64((int64_t)p->size);
        S3_SUM_OUT(o, c->arena, &p->sum, 0);
    }
    return 0;
}
