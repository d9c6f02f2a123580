select name, ordered from holdfast_queue
