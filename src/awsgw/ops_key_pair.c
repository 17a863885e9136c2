/* Key pairs: Create, Import, Describe, Delete. */
#include "awsgw/ops.h"

#include "awsgw/describe.h"
#include "awsgw/tagset.h"
#include "awsgw/txn.h"
#include "codec/base64.h"
#include "crypto/sshkey.h"
#include "model/instance.h"
#include "model/keys.h"

#include <errno.h>

#define NAME_MAX_LEN   255u
#define PUBLIC_KEY_MAX 4096u /* bytes of an OpenSSH line or PEM */

static const char *const key_pair_only[] = {"key-pair", NULL};

/* ASCII only, as the API reference says. */
static int check_name(struct str name, struct err *err)
{
    if (name.n == 0) {
        return fail(err, -EINVAL, "MissingParameter",
                    "The request must contain the parameter KeyName");
    }
    bool is_ok = name.n <= NAME_MAX_LEN && name.p[0] != ' ' && name.p[name.n - 1] != ' ';
    for (size_t i = 0; i < name.n; i++) {
        is_ok = is_ok && name.p[i] >= ' ' && name.p[i] <= '~';
    }
    return is_ok ? 0
                 : fail(err, -EINVAL, "InvalidParameterValue",
                        "Value (%.*s) for parameter KeyName is invalid.", STR_ARG(name));
}

static int store(struct aws_call *call, struct keypair *kp,
                 const struct ec2_tag_specification_list *specs, struct tag_list *ret_tags,
                 struct err *err)
{
    struct str key =
        key_spec(call->arena, "keypair", call->account, name_key(call->arena, kp->name));
    if (store_has(gw_of(call), key)) {
        return fail(err, -EEXIST, "InvalidKeyPair.Duplicate", "The keypair already exists");
    }
    int r = tags_from_spec(call->arena, specs, "key-pair", key_pair_only, ret_tags, err);
    if (r < 0 || (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    kp->id = id_new(call->arena, "key");
    kp->account = call->account;
    kp->create_ns = call->now_ns;
    struct txn *t = txn_open(call);
    txn_create(t, key, &keypair_desc, kp);
    tags_create(t, call->account, kp->id, "key-pair", *ret_tags);
    return txn_commit(t, err);
}

int ec2_create_key_pair(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_create_key_pair_request *in = input;
    struct ec2_key_pair *out = output;
    struct keypair kp = {.name = in->key_name,
                         .type = in->key_type.n > 0 ? in->key_type : STR("rsa")};
    struct tag_list tags = {0};
    int r = check_name(in->key_name, err);
    if (r < 0) {
        return r;
    }
    AUTO(sshkey_pair_done) struct sshkey_pair made = {0};
    enum sshkey_type type = str_eqc(kp.type, "ed25519") ? SSHKEY_ED25519 : SSHKEY_RSA;
    if ((r = sshkey_generate(type, kp.name, &made, err)) < 0) {
        return r;
    }
    kp.public_key = arena_fmt(call->arena, "%s %.*s", made.public_.line, STR_ARG(kp.name));
    kp.fingerprint = arena_str_dup(call->arena, str_c(made.fingerprint));
    if ((r = store(call, &kp, &in->tag_specifications, &tags, err)) < 0) {
        return r;
    }
    out->key_pair_id = kp.id;
    out->key_name = kp.name;
    out->key_fingerprint = kp.fingerprint;
    out->key_material = arena_str_dup(
        call->arena,
        secret_str(str_eqc(in->key_format, "ppk") ? &made.private_ppk : &made.private_pem));
    tags_out(call->arena, tags, &out->tags);
    return 0;
}

int ec2_import_key_pair(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_import_key_pair_request *in = input;
    struct ec2_import_key_pair_result *out = output;
    AUTO(sshkey_public_done) struct sshkey_public pub = {0};
    struct tag_list tags = {0};
    int r = check_name(in->key_name, err);
    if (r < 0) {
        return r;
    }
    if (in->public_key_material.n == 0 || in->public_key_material.n > PUBLIC_KEY_MAX ||
        sshkey_parse(in->public_key_material, &pub, NULL) < 0) {
        return fail(err, -EINVAL, "InvalidKey.Format",
                    "Key is not in valid OpenSSH public key format");
    }
    struct str comment = str_is_empty(str_c(pub.comment)) ? in->key_name : str_c(pub.comment);
    struct keypair kp = {.name = in->key_name,
                         .type = str_c(sshkey_type_name(pub.type)),
                         .public_key =
                             arena_fmt(call->arena, "%s %.*s", pub.line, STR_ARG(comment)),
                         .fingerprint = arena_str_dup(call->arena, str_c(pub.fingerprint))};
    if ((r = store(call, &kp, &in->tag_specifications, &tags, err)) < 0) {
        return r;
    }
    out->key_pair_id = kp.id;
    out->key_name = kp.name;
    out->key_fingerprint = kp.fingerprint;
    tags_out(call->arena, tags, &out->tags);
    return 0;
}

static const char *const filters[] = {"key-pair-id", "fingerprint", "key-name"};

static void values(void *ctx, const void *obj, size_t name_idx, struct aws_filter_probe *p)
{
    const struct keypair *k = REC(keypair, (const struct view_entry *)obj);
    aws_filter_add(p, name_idx == 0 ? k->id : name_idx == 1 ? k->fingerprint : k->name);
}

static const struct view_entry *by_id(struct entries all, struct str id)
{
    for (size_t i = 0; i < all.n; i++) {
        if (str_eq(REC(keypair, all.v[i])->id, id)) {
            return all.v[i];
        }
    }
    return NULL;
}

/* The pairs that names and ids name; all when none is given. */
static int select_pairs(struct aws_call *call, const struct aws_str_list *names,
                        const struct aws_str_list *ids, struct entries *ret, struct err *err)
{
    struct entries all = store_list(gw_of(call), call->arena, "keypair", call->account);
    if (names->n == 0 && ids->n == 0) {
        *ret = all;
        return 0;
    }
    ret->v = arena_array(call->arena, names->n + ids->n, sizeof(*ret->v));
    ret->n = 0;
    if (!ret->v) {
        return fail(err, -ENOMEM, "InvalidParameterValue", "Too many key pairs are named.");
    }
    for (size_t i = 0; i < names->n; i++) {
        const struct view_entry *e =
            store_spec(gw_of(call), call->arena, "keypair", call->account,
                       name_key(call->arena, names->v[i]));
        if (!e) {
            return fail(err, -ENOENT, "InvalidKeyPair.NotFound",
                        "The key pair '%.*s' does not exist", STR_ARG(names->v[i]));
        }
        ret->v[ret->n++] = e;
    }
    for (size_t i = 0; i < ids->n; i++) {
        int r = aws_id_check(AWS_ID_KEY_PAIR, ids->v[i], err);
        if (r < 0) {
            return r;
        }
        const struct view_entry *e = by_id(all, ids->v[i]);
        if (!e) {
            return fail(err, -ENOENT, "InvalidKeyPair.NotFound",
                        "The key pair '%.*s' does not exist", STR_ARG(ids->v[i]));
        }
        ret->v[ret->n++] = e;
    }
    return 0;
}

/* Tags lie under the pair's id, not under its name. */
static void pair_tags(void *ctx, const void *obj, struct aws_filter_probe *p)
{
    struct aws_call *call = ctx;
    struct tag_list tags = tags_of(gw_of(call), call->arena, call->account,
                                   REC(keypair, (const struct view_entry *)obj)->id);
    for (size_t i = 0; i < tags.n; i++) {
        aws_filter_tag(p, tags.v[i].key, tags.v[i].value);
    }
}

int ec2_describe_key_pairs(struct aws_call *call, const void *input, void *output,
                           struct err *err)
{
    const struct ec2_describe_key_pairs_request *in = input;
    struct ec2_describe_key_pairs_result *out = output;
    struct entries all;
    const struct aws_filter_spec fs = {.names = filters,
                                       .n_names = ARRAY_LEN(filters),
                                       .has_tags = true,
                                       .values = values,
                                       .tags = pair_tags};
    struct aws_filter *f = NULL;
    int r = select_pairs(call, &in->key_names, &in->key_pair_ids, &all, err);
    if (r < 0 || (r = aws_filter_open(call->arena, &fs, &in->filters, &f, err)) < 0 ||
        (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    AWS_LIST_MAKE(call->arena, &out->key_pairs, all.n);
    out->key_pairs.n = 0;
    for (size_t i = 0; i < all.n; i++) {
        const struct keypair *k = REC(keypair, all.v[i]);
        if (!aws_filter_match(f, call, all.v[i])) {
            continue;
        }
        struct ec2_key_pair_info *o = &out->key_pairs.v[out->key_pairs.n++];
        o->key_pair_id = k->id;
        o->key_type = k->type;
        o->key_name = k->name;
        o->key_fingerprint = k->fingerprint;
        o->create_time = some_time(k->create_ns);
        o->public_key = in->include_public_key.v ? k->public_key : STR_NONE;
        tags_out(call->arena, tags_of(gw_of(call), call->arena, call->account, k->id),
                 &o->tags);
    }
    return 0;
}

/* Deleting a name that is not there is fine, as on AWS; an id that is not there is an error. */
int ec2_delete_key_pair(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_delete_key_pair_request *in = input;
    struct ec2_delete_key_pair_result *out = output;
    const struct view_entry *e = NULL;
    int r = 0;
    if (str_is_set(in->key_pair_id)) {
        struct entries found;
        struct aws_str_list ids = {
            .v = &(struct str){in->key_pair_id.p, in->key_pair_id.n}, .n = 1, .is_set = true};
        if ((r = select_pairs(call, &(struct aws_str_list){0}, &ids, &found, err)) < 0) {
            return r;
        }
        e = found.v[0];
    } else {
        if ((r = check_name(in->key_name, err)) < 0) {
            return r;
        }
        e = store_spec(gw_of(call), call->arena, "keypair", call->account,
                       name_key(call->arena, in->key_name));
    }
    if ((r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    out->return_ = some_bool(true);
    if (!e) {
        return 0;
    }
    out->key_pair_id = REC(keypair, e)->id;
    struct txn *t = txn_open(call);
    txn_delete(t, e);
    txn_delete_key(t, key_spec(call->arena, "tags", call->account, out->key_pair_id));
    return txn_commit(t, err);
}
