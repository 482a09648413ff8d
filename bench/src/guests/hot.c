/*
 * Hot code: eight small working sets of the kind kernels spend their time in, each a phase of its own.
 * Everything stays within a few pages and a few hundred instructions. The rounds give each phase about as many
 * instructions as the others.
 */
#include "guest.h"

static u32 random_state = 12345;
static u32 random(void) { return random_state = random_state * 1664525 + 1013904223; }

/* --- lists: search, move to front, walk --- */

struct node { struct node *next, *prev; u32 key, uses; };
static struct node nodes[256], head;

static NOINLINE void list_insert(struct node *at, struct node *n) {
    n->next = at->next, n->prev = at;
    at->next->prev = n, at->next = n;
}
static NOINLINE void list_remove(struct node *n) {
    n->prev->next = n->next;
    n->next->prev = n->prev;
}
static NOINLINE struct node *list_find(u32 key) {
    for (struct node *n = head.next; n != &head; n = n->next)
        if (n->key == key) return n;
    return 0;
}
static u32 lists(u32 rounds) {
    u32 sum = 0;
    head.next = head.prev = &head;
    for (u32 i = 0; i < LEN(nodes); i++) {
        nodes[i].key = i * 37 & 255, nodes[i].uses = 0;
        list_insert(&head, &nodes[i * 29 & 255]);
    }
    for (u32 r = 0; r < rounds; r++) {
        struct node *n = list_find(random() >> 24);
        if (!n) continue;
        n->uses++;
        list_remove(n), list_insert(&head, n);
        for (n = head.next; n != &head && n->uses; n = n->next) sum += n->key ^ n->uses;
    }
    return sum;
}

/* --- copying and clearing --- */

static u32 from[1024], to[1024];

static NOINLINE void copy_words(u32 *d, const u32 *s, u32 n) {
    while (n--) *d++ = *s++;
}
static NOINLINE void set_words(u32 *d, u32 v, u32 n) {
    for (u32 i = 0; i < n; i++) d[i] = v;
}
static NOINLINE void copy_bytes(u8 *d, const u8 *s, u32 n) {
    while (n--) *d++ = *s++;
}
static NOINLINE void copy_rep(void *d, const void *s, word words) {
    asm volatile("rep movsl" : "+D"(d), "+S"(s), "+c"(words) : : "memory");
}
static u32 copies(u32 rounds) {
    u32 sum = 0;
    for (u32 r = 0; r < rounds; r++) {
        set_words(from, r, 256);
        copy_words(to, from, 512);
        copy_bytes((u8 *)to + 1000, (u8 *)from + 3, 300);
        copy_words(to + 500, to, 400);
        copy_rep(from, to, 64);
        sum += to[random() >> 22] ^ from[r & 1023];
    }
    return sum;
}

/* --- checksums and hashes --- */

static u32 crc_table[256];

static NOINLINE u32 crc(const u8 *p, u32 n) {
    u32 c = ~0u;
    while (n--) c = crc_table[(c ^ *p++) & 255] ^ c >> 8;
    return ~c;
}
static NOINLINE u32 ones_sum(const u16 *p, u32 n) {
    u32 sum = 0;
    while (n--) sum += *p++;
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return ~sum & 0xffff;
}
static NOINLINE u32 fnv(const u8 *p, u32 n) {
    u32 h = 2166136261u;
    for (u32 i = 0; i < n; i++) h = (h ^ p[i]) * 16777619u;
    return h;
}
static u32 checksums(u32 rounds) {
    u32 sum = 0;
    for (u32 i = 0; i < 256; i++) {
        u32 c = i;
        for (u32 bit = 0; bit < 8; bit++) c = c & 1 ? c >> 1 ^ 0xedb88320 : c >> 1;
        crc_table[i] = c;
    }
    for (u32 r = 0; r < rounds; r++) {
        from[r & 1023] ^= r;
        sum += crc((u8 *)from, 512) + ones_sum((u16 *)from, 400) + fnv((u8 *)from + (r & 63), 300);
    }
    return sum;
}

/* --- sorting --- */

static u32 keys[200];

static NOINLINE void insertion_sort(u32 *a, u32 n) {
    for (u32 i = 1; i < n; i++) {
        u32 v = a[i], j = i;
        for (; j && a[j - 1] > v; j--) a[j] = a[j - 1];
        a[j] = v;
    }
}
static NOINLINE void sift(u32 *a, u32 root, u32 n) {
    for (u32 child; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && a[child] < a[child + 1]) child++;
        if (a[root] >= a[child]) return;
        u32 t = a[root];
        a[root] = a[child], a[child] = t;
    }
}
static NOINLINE void heap_sort(u32 *a, u32 n) {
    for (u32 i = n / 2; i--;) sift(a, i, n);
    for (u32 i = n; i-- > 1;) {
        u32 t = a[0];
        a[0] = a[i], a[i] = t;
        sift(a, 0, i);
    }
}
static u32 sorts(u32 rounds) {
    u32 sum = 0;
    for (u32 r = 0; r < rounds; r++) {
        for (u32 i = 0; i < LEN(keys); i++) keys[i] = random() >> 8;
        if (r & 1) heap_sort(keys, LEN(keys));
        else insertion_sort(keys, 60);
        sum += keys[r % LEN(keys)];
    }
    return sum;
}

/* --- bitmaps --- */

static u32 map[64];

static NOINLINE int map_take(void) {
    for (u32 i = 0; i < LEN(map); i++) {
        if (map[i] == ~0u) continue;
        u32 bit;
        asm("bsfl %1, %0" : "=r"(bit) : "r"(~map[i]) : "cc");
        map[i] |= 1u << bit;
        return i * 32 + bit;
    }
    return -1;
}
static NOINLINE void map_give(u32 at) { map[at / 32] &= ~(1u << at % 32); }
static NOINLINE u32 weight(u32 v) {
    v -= v >> 1 & 0x55555555;
    v = (v & 0x33333333) + (v >> 2 & 0x33333333);
    return ((v + (v >> 4)) & 0x0f0f0f0f) * 0x01010101 >> 24;
}
static NOINLINE u32 reverse(u32 v) {
    u32 r = 0;
    for (u32 i = 0; i < 32; i++) r = r << 1 | (v & 1), v >>= 1;
    return r;
}
static u32 bits(u32 rounds) {
    u32 sum = 0;
    for (u32 i = 0; i < LEN(map); i++) map[i] = ~0u;
    for (u32 r = 0; r < rounds; r++) {
        map_give(random() >> 21), map_give(random() >> 21);
        sum += map_take();
        for (u32 i = 0; i < 8; i++) sum += weight(map[(r + i) & 63]);
        sum ^= reverse(sum + r);
    }
    return sum;
}

/* --- calls, direct and through tables --- */

struct tree { struct tree *left, *right; u32 key; };
static struct tree trees[255];

static NOINLINE struct tree *tree_build(u32 low, u32 high) {
    if (low >= high) return 0;
    u32 middle = (low + high) / 2;
    struct tree *t = &trees[middle];
    t->left = tree_build(low, middle);
    t->right = tree_build(middle + 1, high);
    t->key = middle * 3;
    return t;
}
static NOINLINE u32 tree_sum(const struct tree *t) {
    return t ? tree_sum(t->left) + tree_sum(t->right) + t->key : 0;
}
static NOINLINE int sys_add(int a, int b) { return a + b; }
static NOINLINE int sys_mask(int a, int b) { return a & b; }
static NOINLINE int sys_turn(int a, int b) { return a << 3 ^ b; }
static NOINLINE int sys_fail(int a, int b) { return a > b ? -1 : b; }
static int (*const volatile system_calls[4])(int, int) = { sys_add, sys_mask, sys_turn, sys_fail };
static NOINLINE int dispatch(u32 number, int a, int b) {
    if (number >= LEN(system_calls)) return -38;
    return system_calls[number](a, b);
}
static u32 calls(u32 rounds) {
    u32 sum = 0;
    struct tree *root = tree_build(0, LEN(trees));
    for (u32 r = 0; r < rounds; r++) {
        sum += tree_sum(root);
        for (u32 i = 0; i < 200; i++) sum += dispatch((sum ^ i) % 5, sum, i);
    }
    return sum;
}

/* --- strings --- */

static char line[256];
static const char *const words[] = { "open", "close", "read", "write", "readdir", "rename", "remove", "wait" };

static NOINLINE u32 length(const char *s) {
    u32 n = 0;
    while (s[n]) n++;
    return n;
}
static NOINLINE int compare(const char *a, const char *b) {
    while (*a && *a == *b) a++, b++;
    return (u8)*a - (u8)*b;
}
static NOINLINE char *append(char *d, const char *s) {
    while ((*d = *s++)) d++;
    return d;
}
static NOINLINE char *decimal(char *d, u32 v) {
    char digits[12];
    u32 n = 0;
    do digits[n++] = '0' + v % 10; while (v /= 10);
    while (n) *d++ = digits[--n];
    *d = 0;
    return d;
}
static NOINLINE u32 scan_rep(const char *s) {
    word left = ~0ul;
    asm volatile("repne scasb" : "+D"(s), "+c"(left) : "a"(0) : "cc", "memory");
    return ~left - 1;
}
static u32 strings(u32 rounds) {
    u32 sum = 0;
    for (u32 r = 0; r < rounds; r++) {
        char *end = line;
        for (u32 i = 0; i < 6; i++) {
            const char *word = words[random() >> 29];
            for (u32 k = 0; k < LEN(words); k++)
                if (!compare(word, words[k])) sum += k;
            end = append(end, word);
            *end++ = ' ';
            end = decimal(end, random() >> (i * 4 & 31));
        }
        sum += length(line) + (r & 7 ? 0 : scan_rep(line));
    }
    return sum;
}

/* --- branches: a tokenizer as a state machine --- */

static NOINLINE u32 tokens(const char *s) {
    enum { SPACE, WORD, NUMBER, OTHER } state = SPACE;
    u32 count = 0, value = 0;
    for (; *s; s++) {
        char c = *s;
        switch (state) {
        case SPACE:
            if (c == ' ') break;
            count++;
            state = c >= 'a' && c <= 'z' ? WORD : c >= '0' && c <= '9' ? NUMBER : OTHER;
            value = state == NUMBER ? c - '0' : 0;
            break;
        case WORD:
            if (c == ' ') state = SPACE;
            else if (c >= '0' && c <= '9') state = OTHER;
            break;
        case NUMBER:
            if (c >= '0' && c <= '9') value = value * 10 + c - '0';
            else if (c == ' ') count += value & 7, state = SPACE;
            else state = WORD;
            break;
        case OTHER:
            if (c == ' ') state = SPACE;
            break;
        }
    }
    return count ^ value;
}
static NOINLINE u32 opcode(u32 op, u32 a) {
    switch (op) {
    case 0: return a + 1;
    case 1: return a ^ 0x55;
    case 2: return a << 1;
    case 3: return a >> 3;
    case 4: return a * 5;
    case 5: return -a;
    case 6: return a | 0x100;
    case 7: return a & ~7u;
    default: return a;
    }
}
static u32 branches(u32 rounds) {
    static const char input[] = "fork 12 exec 345 wait x9 yield 70 a1b2 vanish 8 readline 4096 q 77 ok";
    u32 sum = 0;
    for (u32 r = 0; r < rounds; r++) {
        sum += tokens(input + (r & 7));
        for (u32 i = 0; i < 40; i++) sum = opcode((sum >> 3 ^ i) & 15, sum + i);
    }
    return sum;
}

void guest_main(u32 repeat) {
    static const struct { const char *name; u32 (*run)(u32); u32 rounds; } work[] = {
        { "lists", lists, 720 },     { "copies", copies, 370 },     { "checksums", checksums, 250 },
        { "sorts", sorts, 80 },      { "bits", bits, 3500 },        { "calls", calls, 175 },
        { "strings", strings, 650 }, { "branches", branches, 1160 },
    };
    for (u32 i = 0; i < LEN(work); i++) {
        u32 sum = work[i].run(work[i].rounds / 8);
        mark("warm", sum);
        for (u32 r = 0; r < repeat; r++) sum = sum * 31 + work[i].run(work[i].rounds);
        mark(work[i].name, sum);
    }
}
