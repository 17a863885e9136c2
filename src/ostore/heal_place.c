#include "ostore/heal_int.h"

#include "codec/hex.h"
#include "codec/json.h"
#include "crypto/crc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#define NAME     "heal.json"
#define TMP_NAME ".tmp-heal.json"
#define TEXT_MAX (2 * HEAL_CURSOR_MAX + 256)

/* A cursor with a flipped bit would leave bodies out. */
static void check_of(const uint8_t drive_id[16], struct str cursor_hex, char out[9])
{
    uint64_t crc = crc_add(CRC_32C, 0, str_n((const char *)drive_id, 16));
    crc = crc_add(CRC_32C, crc, cursor_hex);
    (void)snprintf(out, 9, "%08x", (unsigned)crc);
}

void heal_place_encode(const uint8_t drive_id[16], const struct heal_cursor *c, struct buf *out)
{
    char id[33], check[9], cursor[2 * HEAL_CURSOR_MAX + 1];
    hex_encode_to(drive_id, 16, id);
    hex_encode_to(c->p, c->n, cursor);
    check_of(drive_id, str_n(cursor, 2 * c->n), check);
    struct jw w;
    jw_init(&w, out);
    jw_obj(&w, NULL);
    jw_u64(&w, "v", 1);
    jw_cstr(&w, "drive", id);
    jw_str(&w, "cursor", str_n(cursor, 2 * c->n));
    jw_cstr(&w, "crc", check);
    jw_obj_end(&w);
    buf_add_char(out, '\n');
}

int heal_place_decode(struct str text, const uint8_t drive_id[16], struct heal_cursor *ret)
{
    AUTO(json_freep) struct json *j = NULL;
    char id[33], check[9];
    if (json_parse(text, &j, NULL) < 0 || json_get_u64(j, "v", 0) != 1) {
        return -EBADMSG;
    }
    struct str cursor = json_get_str(j, "cursor");
    hex_encode_to(drive_id, 16, id);
    check_of(drive_id, cursor, check);
    if (!str_is_set(cursor) || cursor.n % 2 || cursor.n / 2 > HEAL_CURSOR_MAX ||
        !str_eqc(json_get_str(j, "drive"), id) || !str_eqc(json_get_str(j, "crc"), check) ||
        hex_decode(cursor, ret->p, cursor.n / 2) < 0) {
        return -EBADMSG;
    }
    ret->n = cursor.n / 2;
    return 0;
}

void heal_place_read(struct drives *d, unsigned idx, struct heal_cursor *ret)
{
    char text[TEXT_MAX];
    struct drive_facts facts;
    ret->n = 0;
    AUTO_FD fd = fault_open(drives_fs(d), drives_dir(d, idx, DRIVE_ROOT), NAME, O_RDONLY, 0);
    ssize_t n = fd < 0 ? fd : fault_pread(drives_fs(d), fd, text, sizeof(text), 0);
    drives_facts(d, idx, &facts);
    if (n < 0 || heal_place_decode(str_n(text, (size_t)n), facts.id, ret) < 0) {
        ret->n = 0;
    }
}

void heal_place_write(struct drives *d, unsigned idx, const struct heal_cursor *c)
{
    struct drive_facts facts;
    struct fault_fs *fs = drives_fs(d);
    int dir = drives_dir(d, idx, DRIVE_ROOT);
    AUTO_BUF text;
    buf_init(&text, TEXT_MAX);
    drives_facts(d, idx, &facts);
    heal_place_encode(facts.id, c, &text);
    if (dir < 0 || !buf_ok(&text)) {
        return;
    }
    AUTO_FD fd = fault_open(fs, dir, TMP_NAME, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int r = fd < 0 ? fd : fault_pwrite(fs, fd, text.p, text.n, 0);
    r = r < 0 ? r : fault_fdatasync(fs, fd);
    r = r < 0 ? r : fault_rename(fs, dir, TMP_NAME, NAME);
    if (r < 0) {
        drives_fault(d, idx, r, "writing " NAME);
    }
}

void heal_place_remove(struct drives *d, unsigned idx)
{
    int dir = drives_dir(d, idx, DRIVE_ROOT);
    if (dir < 0 || fault_unlink(drives_fs(d), dir, NAME) < 0) {
        return; /* its drive's id is in it: it misleads nobody */
    }
}
