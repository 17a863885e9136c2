#include "viperblock/imgfmt.h"
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str head = str_n((const char *)data, size);
    assert(img_guess(head) != NULL);
    (void)img_sniff(head);
    for (unsigned f = 0; f < IMG_N; f++) {
        struct err err = ERR_INIT;
        uint64_t disk = 0;
        int rc = img_check((enum img_format)f, head, UINT64_C(1) << 40, &disk, &err);
        assert(disk <= UINT64_C(1) << 40);
        assert((rc == 0) == (err.code == 0));
        assert(rc == 0 || err.name != NULL);
        if (rc == 0 && f == IMG_QCOW2) { /* nothing that follows another file may pass */
            assert(size >= 72 && memcmp(data + 8, "\0\0\0\0\0\0\0\0\0\0\0\0", 12) == 0);
        }
    }
    return 0;
}
