/* No text may crash or hang the reader; what it accepts keeps the limits of the table. */
#include "codec/toml.h"
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct item {
    const char *name;
    uint64_t len;
    const char **words;
    size_t n_words;
};
struct top {
    uint64_t n, size, wait_ns;
    bool is_on;
    const char *s;
    struct item *list;
    size_t n_list;
    struct item *named;
    size_t n_named;
};

static const struct toml_key item_keys[] = {
    {.key = "len", .type = TOML_INT, .off = offsetof(struct item, len), .dflt = "7", .max = 32},
    {.key = "words", .type = TOML_STR_LIST, .off = offsetof(struct item, words), .max = 4},
};
static const struct toml_schema item_schema = {sizeof(struct item), item_keys,
                                               ARRAY_LEN(item_keys)};
static const struct toml_key top_keys[] = {
    {.key = "n",
     .type = TOML_INT,
     .off = offsetof(struct top, n),
     .min = 1,
     .max = 9,
     .dflt = "3"},
    {.key = "size", .type = TOML_SIZE, .off = offsetof(struct top, size)},
    {.key = "wait", .type = TOML_DURATION, .off = offsetof(struct top, wait_ns)},
    {.key = "on", .type = TOML_BOOL, .off = offsetof(struct top, is_on)},
    {.key = "s", .type = TOML_STR, .off = offsetof(struct top, s), .max = 8},
    {.key = "list",
     .type = TOML_TABLES,
     .off = offsetof(struct top, list),
     .sub = &item_schema},
    {.key = "named",
     .type = TOML_NAMED,
     .off = offsetof(struct top, named),
     .sub = &item_schema},
};
static const struct toml_schema top_schema = {sizeof(struct top), top_keys,
                                              ARRAY_LEN(top_keys)};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(arena_freep) struct arena *a = arena_new(4 << 20);
    struct top t;
    struct err err = ERR_INIT;
    if (toml_load(&top_schema, a, "f", str_n((const char *)data, size), &t, &err) < 0) {
        assert(err.code < 0 && str_has_prefixc(str_c(err.msg), "f:"));
        assert(t.n == 0 && t.list == NULL);
        return 0;
    }
    assert(t.n >= 1 && t.n <= 9 && strlen(t.s) <= 8);
    for (size_t i = 0; i < t.n_list; i++) {
        assert(t.list[i].len <= 32 && t.list[i].n_words <= 4);
    }
    for (size_t i = 0; i < t.n_named; i++) {
        assert(t.named[i].name && t.named[i].name[0] && t.named[i].len <= 32);
    }
    /* A quoted string reads as itself. */
    AUTO_BUF text;
    buf_init(&text, 200);
    buf_addc(&text, "s = ");
    toml_quote(str_c(t.s), &text);
    struct top back;
    int r = toml_load(&top_schema, a, "f", buf_str(&text), &back, &err);
    assert(r == 0 && strcmp(t.s, back.s) == 0);
    return 0;
}
