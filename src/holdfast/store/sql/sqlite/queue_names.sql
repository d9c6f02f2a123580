select name from holdfast_queue
