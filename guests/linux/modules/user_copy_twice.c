/* A length that is fetched from the program twice: once to check it and once to use it. */
#include <linux/uaccess.h>

#include "rockfall_module.h"

#define LENGTH_MAX 16

struct request {
    unsigned long length;
    char text[64];
};

static long submit(unsigned long argument)
{
    const struct request __user *from = (const struct request __user *)argument;
    struct request request;
    unsigned long length;

    if (get_user(length, &from->length))
        return -EFAULT;
    if (length > LENGTH_MAX)
        return -EINVAL;
    if (copy_from_user(&request, from, sizeof request))
        return -EFAULT;
#ifdef MENDED
    request.length = length;
#endif
    /* Here a driver would fill a buffer of LENGTH_MAX bytes. */
    return request.length > LENGTH_MAX ? -EOVERFLOW : 0;
}

ROCKFALL_MODULE(user_copy_twice, nothing_to_begin, nothing_to_end, submit);
