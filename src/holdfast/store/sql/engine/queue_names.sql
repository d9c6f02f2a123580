select name, ordered from holdfast.queue
