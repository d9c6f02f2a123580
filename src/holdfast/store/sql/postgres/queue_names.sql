select name from holdfast.queue
