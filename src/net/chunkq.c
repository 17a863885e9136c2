#include "net/chunkq.h"

#include <assert.h>

struct chunkq_block {
    struct chunkq_block *next;
    size_t begin, end, cap;
    char p[];
};

#define MIN_BLOCK 2048

static struct chunkq_block *block_new(size_t n)
{
    size_t cap = MAX(n, (size_t)MIN_BLOCK - sizeof(struct chunkq_block));
    struct chunkq_block *b = malloc(sizeof(*b) + cap);
    if (!b) {
        abort();
    }
    b->next = NULL;
    b->begin = b->end = 0;
    b->cap = cap;
    return b;
}

static void append_block(struct chunkq *q, struct chunkq_block *b)
{
    if (q->last) {
        q->last->next = b;
    } else {
        q->first = b;
    }
    q->last = b;
}

void chunkq_add(struct chunkq *q, struct str bytes)
{
    q->n_bytes += bytes.n;
    if (q->last && bytes.n) {
        /* Fill up the last block first: a head and its small body leave in one record. */
        struct chunkq_block *b = q->last;
        size_t n = MIN(bytes.n, b->cap - b->end);
        memcpy(b->p + b->end, bytes.p, n);
        b->end += n;
        bytes = str_skip(bytes, n);
    }
    if (bytes.n) {
        struct chunkq_block *b = block_new(bytes.n);
        memcpy(b->p, bytes.p, bytes.n);
        b->end = bytes.n;
        append_block(q, b);
    }
}

struct chunkq_block *chunkq_block_new(size_t size)
{
    return block_new(size);
}

char *chunkq_block_bytes(struct chunkq_block *b)
{
    return b->p;
}

void chunkq_block_free(struct chunkq_block *b)
{
    free(b);
}

void chunkq_add_block(struct chunkq *q, struct chunkq_block *b, size_t n)
{
    assert(n <= b->cap);
    if (n == 0) {
        free(b);
        return;
    }
    b->end = n;
    q->n_bytes += n;
    append_block(q, b);
}

void chunkq_addc(struct chunkq *q, const char *c)
{
    chunkq_add(q, str_c(c));
}

void chunkq_move(struct chunkq *q, struct chunkq *from)
{
    struct chunkq_block *b = from->first;
    if (b && !b->next && q->last && q->last->cap - q->last->end >= b->end - b->begin) {
        chunkq_add(q, str_n(b->p + b->begin, b->end - b->begin));
        chunkq_done(from);
        return;
    }
    if (b) {
        append_block(q, b);
        q->last = from->last;
        q->n_bytes += from->n_bytes;
    }
    *from = (struct chunkq){NULL, NULL, 0};
}

size_t chunkq_iov(const struct chunkq *q, struct iovec *iov, size_t max_iov)
{
    size_t n = 0;
    for (struct chunkq_block *b = q->first; b && n < max_iov; b = b->next) {
        iov[n++] = (struct iovec){b->p + b->begin, b->end - b->begin};
    }
    return n;
}

void chunkq_drop(struct chunkq *q, size_t n)
{
    assert(n <= q->n_bytes);
    q->n_bytes -= n;
    while (n) {
        struct chunkq_block *b = q->first;
        size_t take = MIN(n, b->end - b->begin);
        b->begin += take;
        n -= take;
        if (b->begin == b->end) {
            q->first = b->next;
            if (!q->first) {
                q->last = NULL;
            }
            free(b);
        }
    }
}

void chunkq_done(struct chunkq *q)
{
    chunkq_drop(q, q->n_bytes);
}
