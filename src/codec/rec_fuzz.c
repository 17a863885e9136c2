/* A record that loads also saves, and what was saved loads to the same text: nothing is lost.
 */
#include "codec/json.h"
#include "codec/rec.h"
#include <assert.h>
#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct rule {
    struct rec_head head;
    struct str cidr;
    int64_t port;
};
static const struct rec_field rule_fields[] = {
    REC_FIELD(struct rule, REC_STR, cidr),
    REC_FIELD(struct rule, REC_I64, port),
};
static REC_DESC(rule_desc, struct rule, "rule", 1, rule_fields);

struct rule_list {
    struct rule *v;
    size_t n;
};
struct group {
    struct rec_head head;
    struct str id;
    uint64_t n;
    bool is_open;
    struct str_list names;
    struct rule first;
    struct rule_list rules;
};
static const struct rec_field group_fields[] = {
    REC_FIELD(struct group, REC_STR, id),
    REC_FIELD(struct group, REC_U64, n),
    REC_FIELD(struct group, REC_BOOL, is_open),
    REC_FIELD(struct group, REC_STR_LIST, names),
    REC_FIELD_SUB(struct group, REC_OBJ, first, &rule_desc),
    REC_FIELD_SUB(struct group, REC_OBJ_LIST, rules, &rule_desc),
};
static REC_DESC(group_desc, struct group, "group", 2, group_fields);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    struct group g, back;
    struct err err = ERR_INIT;
    if (rec_load(&group_desc, a, str_n((const char *)data, size), &g, &err) < 0) {
        assert(err.code < 0 && err.msg[0]);
        assert(g.id.p == NULL && g.rules.n == 0);
        return 0;
    }
    AUTO_BUF one;
    AUTO_BUF two;
    buf_init(&one, size * 16 + 1024);
    buf_init(&two, size * 16 + 1024);
    int r = rec_save(&group_desc, &g, &one, &err);
    assert(r == 0);
    r = rec_load(&group_desc, a, buf_str(&one), &back, &err);
    assert(r == 0 || r == -ENOMEM);
    if (r == 0) {
        r = rec_save(&group_desc, &back, &two, &err);
        assert(r == 0 && str_eq(buf_str(&one), buf_str(&two)));
        assert(str_eq(g.id, back.id) && g.rules.n == back.rules.n && g.n == back.n);
    }
    return 0;
}
