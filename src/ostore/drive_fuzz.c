/* drive.json, twice: as it comes (its checksum stops nearly everything), and its inner object
 * under a checksum that fits. Accepted means: written again, it reads as the same. */
#include "crypto/crc.h"
#include "ostore/drive_int.h"
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(struct str text)
{
    struct drive_table t = {0}, back = {0};
    struct err err = ERR_INIT;
    int rc = drive_table_decode(text, &t, &err);
    if (rc < 0) {
        assert((rc == -EBADMSG || rc == -ENOTSUP) && err.code == rc);
        return;
    }
    assert(t.n >= 1 && t.n <= DRIVES_MAX && t.place < t.n && t.generation > 0);
    AUTO_BUF out;
    buf_init(&out, DRIVE_FILE_MAX);
    rc = drive_table_encode(&t, &out);
    assert(rc == 0);
    rc = drive_table_decode(buf_str(&out), &back, &err);
    assert(rc == 0 && memcmp(&t, &back, sizeof(t)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str s = str_n((const char *)data, size);
    look(s);
    AUTO_BUF framed;
    buf_init(&framed, size + 64);
    buf_fmt(&framed, "{\"crc32c\":\"%08x\",\"drive\":", (unsigned)crc_add(CRC_32C, 0, s));
    buf_add(&framed, s);
    buf_addc(&framed, "}\n");
    look(buf_str(&framed));
    return 0;
}
