/* Accepted means: dumped again it is the same, and a second dump changes nothing. */
#include "codec/json.h"
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(json_freep) struct json *j = NULL;
    AUTO(json_freep) struct json *back = NULL;
    struct err err = ERR_INIT;
    if (json_parse(str_n((const char *)data, size), &j, &err) < 0) {
        assert(err.code < 0 && err.msg[0]);
        return 0;
    }
    AUTO_BUF one;
    AUTO_BUF two;
    buf_init(&one, size * 8 + 64);
    buf_init(&two, size * 8 + 64);
    json_dump(j, &one);
    assert(buf_ok(&one));
    int r = json_parse(buf_str(&one), &back, &err);
    assert(r == 0);
    json_dump(back, &two);
    assert(buf_ok(&two) && str_eq(buf_str(&one), buf_str(&two)));

    /* The bytes themselves as a string: the writer makes valid JSON of anything. */
    AUTO_BUF text;
    AUTO(json_freep) struct json *s = NULL;
    buf_init(&text, size * 6 + 64);
    struct jw w;
    jw_init(&w, &text);
    jw_str(&w, NULL, str_n((const char *)data, size));
    r = json_parse(buf_str(&text), &s, &err);
    assert(buf_ok(&text) && r == 0);
    if (str_utf8_len(str_n((const char *)data, size)) != SIZE_MAX) {
        assert(str_eq(json_str(s), str_n((const char *)data, size)));
    }
    return 0;
}
